//! Draws wasted reads against bits per key, as SVG and as PNG.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use bytes::Bytes;
use leveltable::OpenOptions;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::register_font;

use crate::format::thousands;
use crate::measure::{self, Filter, Measured};
use crate::workload::{Shape, Workload};

/// The panels. Theory assumes random keys; real keys often look like decimal ones.
const PANELS: [(Shape, &str); 2] = [
    (Shape::Random, "Random keys"),
    (Shape::Decimal, "Decimal keys of 16 digits"),
];

/// Number of tables to measure for each point. With a million keys each that makes four million lookups, of
/// which some 250 read a block at the lowest point, at 14 bits per key.
const TABLES: u64 = 4;

/// Size of the picture in units. The PNG has [`SCALE`] pixels a unit.
const SIZE: (u32, u32) = (960, 480);
const SCALE: u32 = 2;

/// A kind of filter, the settings to measure, and how to draw them.
struct Kind {
    name: &'static str,
    filter: fn(u32) -> Filter,
    bits: &'static [u32],
    colour: RGBColor,
}

/// In colours that colour-blind readers can tell apart (Okabe and Ito 2008).
const KINDS: [Kind; 3] = [
    Kind {
        name: "Bloom, 2 KiB windows (LevelDB)",
        filter: Filter::BloomWindows,
        bits: &[3, 4, 6, 8, 10, 12],
        colour: RGBColor(213, 94, 0),
    },
    Kind {
        name: "Bloom, whole table",
        filter: Filter::BloomTable,
        bits: &[4, 6, 8, 10, 12, 14],
        colour: RGBColor(0, 114, 178),
    },
    Kind {
        name: "ribbon, whole table (leveltable)",
        filter: Filter::Ribbon,
        bits: &[5, 6, 8, 10, 12, 14],
        colour: RGBColor(0, 158, 115),
    },
];

const FLOOR_COLOUR: RGBColor = RGBColor(110, 110, 110);

/// Bits per key, and the share of lookups of absent keys that read a block.
type Point = (f64, f64);

struct Panel {
    title: &'static str,
    /// One curve for each of [`KINDS`].
    curves: [Vec<Point>; KINDS.len()],
}

/// Measures, and writes `avoided_reads.svg` and `avoided_reads.png` into `dir`.
pub(crate) fn draw(dir: &Path, entries: u64, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut panels = Vec::new();
    for (shape, title) in PANELS {
        panels.push(measure_panel(shape, title, entries, out)?);
    }
    let title = format!(
        "Reads that a filter fails to avoid, in a table of {} keys (lower is better)",
        thousands(entries)
    );

    // The text is measured and drawn with an embedded font. Viewers of the SVG use a font of their own.
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the embedded font cannot be read")?;
    fs::create_dir_all(dir)?;

    let svg = dir.join("avoided_reads.svg");
    draw_picture(
        SVGBackend::new(&svg, SIZE).into_drawing_area(),
        1,
        &title,
        &panels,
    )?;
    writeln!(out, "wrote {}", svg.display())?;

    let (width, height) = (SIZE.0 * SCALE, SIZE.1 * SCALE);
    let mut pixels = vec![0; (width * height * 3) as usize];
    let backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
    draw_picture(backend.into_drawing_area(), SCALE, &title, &panels)?;
    let png = dir.join("avoided_reads.png");
    write_png(&png, width, height, &pixels)?;
    writeln!(out, "wrote {}", png.display())?;
    Ok(())
}

fn measure_panel(
    shape: Shape,
    title: &'static str,
    entries: u64,
    out: &mut impl Write,
) -> Result<Panel, Box<dyn Error>> {
    let start = |kind: Kind| {
        kind.bits
            .iter()
            .map(move |&bits| ((kind.filter)(bits), Measured::default()))
    };
    let mut points = KINDS.map(|kind| start(kind).collect::<Vec<_>>());
    for table in 0..TABLES {
        writeln!(out, "{title}: table {} of {TABLES}", table + 1)?;
        let numbers = table * entries..(table + 1) * entries;
        let workload = Workload::generate(shape, numbers, usize::MAX);
        for (filter, sum) in points.iter_mut().flatten() {
            let measured = in_memory(&workload, *filter)?;
            sum.bits_per_key = measured.bits_per_key;
            sum.lookups += measured.lookups;
            sum.wasted_reads += measured.wasted_reads;
        }
    }
    for (filter, point) in points.iter().flatten() {
        let (bits, wasted) = (point.bits_per_key, point.rate() * 100.0);
        writeln!(
            out,
            "{filter:<21}  {bits:>5.2} bits per key  {wasted:>8.4} % wasted"
        )?;
    }
    // A logarithmic axis cannot show 0.
    let curves = points.map(|points| {
        let drawn = points.iter().filter(|(_, point)| point.wasted_reads > 0);
        drawn
            .map(|(_, point)| (point.bits_per_key, point.rate()))
            .collect()
    });
    Ok(Panel { title, curves })
}

/// Measures `filter` on a table in memory. Reads are counted as they are for a file.
fn in_memory(workload: &Workload, filter: Filter) -> Result<Measured, Box<dyn Error>> {
    let mut file = Vec::new();
    let summary = measure::write(filter.options().build(&mut file), workload)?;
    let file = Bytes::from(file);
    let table = OpenOptions::new().open_source(file.clone())?;
    measure::find_every_present_key(&table, workload)?;
    measure::miss_every_absent_key(file, &summary, workload)
}

/// Draws the picture with `scale` pixels to a unit.
fn draw_picture<B: DrawingBackend>(
    area: DrawingArea<B, Shift>,
    scale: u32,
    title: &str,
    panels: &[Panel],
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let area = area
        .margin(10 * scale, 0, 0, 6 * scale)
        .titled(title, ("sans-serif", 20 * scale))?;
    for (i, (panel, area)) in panels
        .iter()
        .zip(area.split_evenly((1, panels.len())))
        .enumerate()
    {
        draw_panel(&area, scale, panel, i == 0)?;
    }
    area.present()?;
    Ok(())
}

fn draw_panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    scale: u32,
    panel: &Panel,
    with_legend: bool,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    let text = ("sans-serif", 15 * scale);
    let small = ("sans-serif", 14 * scale);
    let bits = 4.0..16.0_f64;
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, ("sans-serif", 17 * scale))
        .margin(8 * scale)
        .x_label_area_size(42 * scale)
        .y_label_area_size(66 * scale)
        .build_cartesian_2d(bits.clone(), (1e-5..1.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("bits per key, the whole filter block counted")
        .y_desc("lookups of absent keys that read a block")
        .x_labels(7)
        .y_labels(6)
        .x_label_formatter(&|bits| format!("{bits:.0}"))
        .y_label_formatter(&|rate| format!("{} %", rate * 100.0))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_desc_style(text)
        .label_style(small)
        .draw()?;

    // No filter with so many bits per key lets fewer absent keys pass.
    let floor = [bits.start, bits.end].map(|bits| (bits, (-bits).exp2()));
    let (dash, gap) = (6 * scale, 4 * scale);
    let line = FLOOR_COLOUR.stroke_width(scale);
    chart
        .draw_series(DashedLineSeries::new(floor, dash, gap, line))?
        .label("2^-bits: no filter can do better")
        .legend(move |at| DashedPathElement::new(legend_line(at, scale), dash, gap, line));
    for (kind, curve) in KINDS.iter().zip(&panel.curves) {
        let line = kind.colour.stroke_width(2 * scale);
        let dot = move |at| Circle::new(at, 3 * scale, kind.colour.filled());
        chart
            .draw_series(LineSeries::new(curve.iter().copied(), line))?
            .label(kind.name)
            .legend(move |at| PathElement::new(legend_line(at, scale), line));
        chart.draw_series(curve.iter().map(|&at| dot(at)))?;
    }
    if with_legend {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .legend_area_size(LEGEND_LINE * scale + 6 * scale)
            .margin(8 * scale)
            .label_font(small)
            .background_style(WHITE)
            .draw()?;
    }
    Ok(())
}

/// Length of a line in the legend, in units.
const LEGEND_LINE: u32 = 24;

fn legend_line((x, y): (i32, i32), scale: u32) -> [(i32, i32); 2] {
    [(x, y), (x + (LEGEND_LINE * scale) as i32, y)]
}

fn write_png(path: &Path, width: u32, height: u32, rgb: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(())
}
