//! Entries as Arrow record batches, through the C stream interface: pyarrow, DuckDB, polars and pandas accept them without
//! a copy.

use std::iter;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{
    Array as _, ArrayAccessor, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader as _,
};
use arrow_pyarrow::FromPyArrow as _;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::{check_signals, other, raise};
use crate::handle::Handle;
use crate::keys::Bounds;
use crate::output::Builder;
use crate::walk::Walk;

/// Maximum size of a batch in bytes, unless a single entry is larger.
const MAX_BYTES: usize = 64 << 20;

/// The entries of a range, as record batches. Each requested stream walks the range from its start.
#[pyclass(frozen, module = "leveltable")]
pub(crate) struct Batches {
    pub(crate) handle: Handle,
    pub(crate) bounds: Bounds,
    /// Maximum number of rows of a batch.
    pub(crate) rows: usize,
}

fn schema() -> Schema {
    let column = |name| Field::new(name, DataType::LargeBinary, false);
    Schema::new(vec![column("key"), column("value")])
}

#[pymethods]
impl Batches {
    /// The stream, in the schema that `__arrow_c_schema__` returns.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema); // a request that a producer need not follow
        let step = self.handle.step(self.bounds.clone(), false);
        let mut walk = Walk::new(step.map_err(raise)?);
        let (rows, schema) = (self.rows, Arc::new(schema()));
        let batch_schema = Arc::clone(&schema);
        // Runs without the interpreter's lock.
        let batches = iter::from_fn(move || {
            let read = walk.read(rows, MAX_BYTES).transpose()?;
            Some(match read {
                Ok(columns) => RecordBatch::try_new(
                    Arc::clone(&batch_schema),
                    columns.map(|column| Arc::new(column) as ArrayRef).to_vec(),
                ),
                Err(error) => Err(ArrowError::ExternalError(Box::new(error))),
            })
        });
        let batches = RecordBatchIterator::new(batches, schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(schema());
        let schema = schema.map_err(|error| other(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

/// Adds the rows of `data`, which has `__arrow_c_stream__`, from its columns of these names.
pub(crate) fn add(
    builder: &mut Builder,
    data: &Bound<'_, PyAny>,
    [key, value]: [&str; 2],
) -> PyResult<()> {
    let reader = RecordBatchStreamReader::from_pyarrow_bound(data)?;
    let schema = reader.schema();
    let column = |name: &str| {
        schema.index_of(name).map_err(|error| {
            let what = format!("no column {name:?}: name the columns by key= and value=. {error}");
            PyValueError::new_err(what)
        })
    };
    let (key, value) = (column(key)?, column(value)?);
    data.py().detach(|| {
        for batch in reader {
            let batch = batch.map_err(|error| other(format!("reading a batch: {error}")))?;
            let (keys, values) = (rows(&batch, key)?, rows(&batch, value)?);
            for row in 0..batch.num_rows() {
                builder.add(keys(row), values(row)).map_err(raise)?;
            }
            check_signals()?;
        }
        Ok(())
    })
}

type Rows<'a> = Box<dyn Fn(usize) -> &'a [u8] + 'a>;

/// The rows of a column of bytes or text.
fn rows(batch: &RecordBatch, column: usize) -> PyResult<Rows<'_>> {
    fn of<'a, T: AsRef<[u8]> + ?Sized + 'a>(
        column: impl ArrayAccessor<Item = &'a T> + 'a,
    ) -> Rows<'a> {
        Box::new(move |row| column.value(row).as_ref())
    }
    let name = batch.schema().field(column).name().clone();
    let wrong = |why: String| Err(PyValueError::new_err(format!("column {name:?} {why}")));
    let column = batch.column(column);
    if column.null_count() > 0 {
        return wrong("has nulls: a table holds keys and values of bytes only".into());
    }
    Ok(match column.data_type() {
        DataType::Binary => of(column.as_binary::<i32>()),
        DataType::LargeBinary => of(column.as_binary::<i64>()),
        DataType::BinaryView => of(column.as_binary_view()),
        DataType::Utf8 => of(column.as_string::<i32>()),
        DataType::LargeUtf8 => of(column.as_string::<i64>()),
        DataType::Utf8View => of(column.as_string_view()),
        other => return wrong(format!("is of type {other}: cast it to binary or text")),
    })
}
