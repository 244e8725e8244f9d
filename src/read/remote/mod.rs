//! Tables that are read over a network, without blocking a thread, under any runtime.
//!
//! [`AsyncTable`] returns the same answers as [`Table`](crate::Table), by the same code: an open table decides which bytes it
//! needs; only the reads differ. Here they come from an [`AsyncReadAt`], whose requests are slow and cost money, so it makes as
//! few as possible:
//!
//! | | requests |
//! |---|---|
//! | opening | one for the end of the file; one more if that was too short; for tables of other writers, sometimes a third |
//! | a key that the filter excludes, or whose block is in the cache | none |
//! | any other key | one, for one block, shared with other tasks that want the block at the same time |
//! | [`get_many`](AsyncTable::get_many) | one for all blocks that lie within 64 KiB of each other, up to 8 MiB; 32 at a time |
//! | a walk | from 64 KiB on, each request of twice the bytes of the one before, up to 8 MiB; after the first, up to four at a time, and then six ([`expect_all`](AsyncRange::expect_all): 8 MiB at once) |
//!
//! A walk takes up to 56 MiB of memory for its current block and requests in flight.
//!
//! Nothing here depends on a runtime, and nothing runs unless its future is polled. Dropping a future cancels its requests, unless
//! other tasks wait for them, and loses nothing: the next call begins where the last completed one ended.
//!
//! ```
//! use leveltable::remote::AsyncTable;
//! # use leveltable::WriteOptions;
//! # let mut file = Vec::new();
//! # let mut builder = WriteOptions::new().build(&mut file);
//! # builder.add(b"apple", b"red")?;
//! # builder.finish()?;
//! # let object = bytes::Bytes::from(file);
//! # let work = async {
//! let table = AsyncTable::open(object).await?;
//! assert_eq!(table.get("apple").await?.as_deref(), Some(&b"red"[..]));
//! let mut all = table.range(..);
//! while let Some((key, value)) = all.next().await? {
//!     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), leveltable::Error>(())
//! # };
//! # futures_util::future::FutureExt::now_or_never(work).unwrap()?;
//! # Ok::<(), leveltable::Error>(())
//! ```

mod fetch;
mod flights;
mod range;
mod table;
mod walk;

pub use crate::read::source::async_read_at::{AsyncReadAt, BoxFuture, Tail};
pub use range::AsyncRange;
pub use table::AsyncTable;
