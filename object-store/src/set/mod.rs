//! Sets: many tables that read like one, and are replaced as one.

mod error;
mod manifest;
mod place;
mod publish;
mod range;
mod record;
mod shelf;
mod table_set;

use std::sync::Arc;

use leveltable::OpenOptions;
use object_store::ObjectStore;

use crate::attempts::{Retries, Timeouts};

pub use error::{PublishError, PublishErrorKind};
pub use publish::{Published, SetVersion, publish};
pub use range::SetRange;
pub use record::Shard;
pub use table_set::TableSet;

/// How a set is opened and published.
#[derive(Debug, Clone)]
#[must_use]
pub struct SetOptions {
    tables: OpenOptions,
    most_open: usize,
    timeouts: Timeouts,
    retries: Retries,
}

impl Default for SetOptions {
    fn default() -> SetOptions {
        SetOptions::new()
    }
}

impl SetOptions {
    /// Tables are opened with [`OpenOptions::new`], and 64 of them stay open.
    pub fn new() -> SetOptions {
        SetOptions {
            tables: OpenOptions::new(),
            most_open: 64,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
        }
    }

    /// How the tables are opened, such as with a cache of their own.
    pub fn tables(mut self, options: OpenOptions) -> SetOptions {
        self.tables = options;
        self
    }

    /// How many tables stay open, at least one. The one that was not used for longest is closed. An open table keeps its
    /// filter and its index in memory, about as many bytes as its [tail](Shard::tail_len).
    pub fn most_open(mut self, tables: usize) -> SetOptions {
        self.most_open = tables;
        self
    }

    /// How long each attempt of a request may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> SetOptions {
        self.timeouts = timeouts;
        self
    }

    /// How often a request that failed is made again.
    pub fn retries(mut self, retries: Retries) -> SetOptions {
        self.retries = retries;
        self
    }

    fn client(&self, store: Arc<dyn ObjectStore>) -> place::Client {
        place::Client {
            store,
            timeouts: self.timeouts.clone(),
            retries: self.retries.clone(),
        }
    }
}
