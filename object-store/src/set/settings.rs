//! The settings of a set: those of [`SetOptions`](super::SetOptions).

use std::sync::Arc;

use leveltable::OpenOptions;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::ObjectSource;
use crate::attempts::Patience;
use crate::source::MAX_REQUESTS;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) tables: OpenOptions,
    pub(super) max_open: usize,
    pub(super) max_bytes: u64,
    pub(super) max_requests: usize,
    pub(super) patience: Patience,
}

impl Settings {
    pub(super) fn new() -> Settings {
        Settings {
            tables: OpenOptions::new(),
            max_open: 64,
            max_bytes: 128 << 20,
            max_requests: MAX_REQUESTS,
            patience: Patience::default(),
        }
    }

    pub(super) fn source(&self, store: Arc<dyn ObjectStore>, path: &Path) -> ObjectSource {
        let Patience { timeouts, retries } = self.patience.clone();
        ObjectSource::new(store, path.clone())
            .timeouts(timeouts)
            .retries(retries)
    }
}
