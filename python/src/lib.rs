//! The extension module of the Python package `leveltable`, documented for its users in `leveltable/__init__.py` and
//! `leveltable/_native.pyi`.

mod arrow;
mod builder;
mod database;
mod errors;
mod handle;
mod keys;
mod new_database;
mod output;
mod publish;
mod repair;
mod report;
mod runtime;
mod table;
mod walk;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        arrow::Batches,
        builder::TableBuilder,
        database::Database,
        new_database::{_build_database, _compact_database},
        publish::publish,
        repair::{repair_database, salvage, verify},
        table::{Reader, Table},
    };
}
