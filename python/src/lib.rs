//! The extension module of the Python package `leveltable`: what it does is described where Python's users look, in
//! `leveltable/__init__.py` and `leveltable/_native.pyi`.

mod arrow;
mod builder;
mod database;
mod errors;
mod handle;
mod keys;
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
    use crate::arrow::{Batches, write_arrow};
    #[pymodule_export]
    use crate::builder::TableBuilder;
    #[pymodule_export]
    use crate::database::Database;
    #[pymodule_export]
    use crate::publish::publish;
    #[pymodule_export]
    use crate::repair::{merge, salvage, verify};
    #[pymodule_export]
    use crate::table::{Reader, Table};
}
