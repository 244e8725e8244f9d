//! The state of a verification, and its only way to read a block.

use std::ops::Range;

use bytes::Bytes;
use leveltable::format::{BlockHandle, Defect, Pieces, Properties};
use leveltable::sister_crates::Order;
use leveltable::{Error, ErrorKind, Result, Section};

use super::filter::Filter;
use super::options::VerifyOptions;
use super::report::{Place, VerifyReport};
use crate::file::{File, open_sound};

/// Start and end of a block in the file, its trailer included.
pub(super) type Extent = (u64, u64, Section);

/// A run over one file.
pub(super) struct Run<'a> {
    pub(super) file: &'a File,
    pub(super) options: VerifyOptions<'a>,
    /// The order of the stored keys, if it is known.
    pub(super) order: Option<Order>,
    /// Whether the first keys fit both kinds and nothing else says of which kind they are.
    pub(super) fits_both_kinds: bool,
    pub(super) is_kind_guessed: bool,
    pub(super) report: VerifyReport,
    /// The sound filters among those in the metaindex.
    pub(super) filters: Vec<Filter>,
    /// The block that divides index and filters, and its place.
    pub(super) pieces: Option<(Pieces, Place)>,
    /// The table's properties, and their place.
    pub(super) properties: Option<(Properties, Place)>,
    /// The counts that the properties are compared with.
    pub(super) counted: Properties,
    /// Where data must end: before metaindex and index.
    pub(super) data_end: u64,
    /// The extents of all blocks that handles lead to.
    pub(super) extents: Vec<Extent>,
    /// Number of bytes that may still be read through handles. A hostile file could name a large block again and again.
    pub(super) budget: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(file: &'a File, mut options: VerifyOptions<'a>) -> Run<'a> {
        options.progress.total = file.size;
        Run {
            report: VerifyReport::default(),
            file,
            options,
            order: None,
            fits_both_kinds: false,
            is_kind_guessed: false,
            filters: Vec::new(),
            pieces: None,
            properties: None,
            counted: Properties::default(),
            data_end: 0,
            extents: Vec::new(),
            budget: file.size.saturating_mul(2),
        }
    }

    /// The table's properties.
    pub(super) fn stated(&self) -> Option<&Properties> {
        self.properties.as_ref().map(|(stated, _)| stated)
    }

    /// Decodes, with `decode`, the block at `handle`, which is in the sound block at `named_by`. Reports why it cannot be read,
    /// or what is wrong with it.
    pub(super) fn load<T>(
        &mut self,
        handle: BlockHandle,
        section: Section,
        named_by: Place,
        decode: impl FnOnce(Bytes) -> Result<T, Defect>,
    ) -> Option<T> {
        let range = self.file.range_of(handle, section, named_by);
        let range = range.map_err(|error| self.report.find_error(named_by, &error));
        let range = range.ok()?;
        let place = (section, handle.offset);
        let frame = self.read(range.clone());
        let frame = frame.map_err(|error| self.report.find_error(place, &error));
        let frame = frame.ok()?;
        self.account(section, range);
        self.accept(place, open_sound(&frame).and_then(decode))
    }

    /// Reports the defect, if there is one.
    pub(super) fn accept<T>(&mut self, place: Place, checked: Result<T, Defect>) -> Option<T> {
        let locate = |defect: Defect| defect.locate(place.0, place.1);
        let report = |defect| self.report.find_error(place, &locate(defect));
        checked.map_err(report).ok()
    }

    /// Notes that a block of `section`, with its trailer, lies at `range`.
    pub(super) fn account(&mut self, section: Section, range: Range<u64>) {
        self.report.checked_bytes += range.end - range.start;
        self.extents.push((range.start, range.end, section));
    }

    /// Reads the frame at `range`, unless too much has been read through handles.
    pub(super) fn read(&mut self, range: Range<u64>) -> Result<Bytes> {
        let why = "this block was not read: handles lead to more than twice the file";
        let left = self.budget.checked_sub(range.end - range.start);
        self.budget = left.ok_or_else(|| Error::new(ErrorKind::Unsupported, why))?;
        self.file.read(range)
    }
}
