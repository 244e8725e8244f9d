//! Prints the most bytes that an allocator has handed out at once while a table is built. A program of its own, since counting
//! takes time.

use anyhow::Result;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

fn main() -> Result<()> {
    let entries: usize = std::env::args().nth(1).unwrap_or_default().parse()?;
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    work::side::build_numbers(entries, true)?;
    println!("{}", ALLOCATOR.peak_usage() - before);
    Ok(())
}
