//! Entries as Arrow record batches, by the C stream interface: pyarrow, DuckDB, polars and pandas take them without a copy.

use std::iter;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, ArrayAccessor, RecordBatch, RecordBatchIterator, RecordBatchReader as _};
use arrow_pyarrow::FromPyArrow as _;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::builder::{Builder, Options};
use crate::errors::{other, raise, wrong_type};
use crate::handle::Handle;
use crate::keys::Bounds;
use crate::repair::check_signals;

/// Most bytes of a batch, unless one entry alone has more.
const MAX_BYTES: usize = 64 << 20;

/// The entries of a range, as record batches. Each stream that is asked for walks the range from its start.
#[pyclass(frozen, module = "leveltable")]
pub(crate) struct Batches {
    handle: Handle,
    bounds: Bounds,
    rows: usize,
}

fn schema() -> Schema {
    let column = |name| Field::new(name, DataType::LargeBinary, false);
    Schema::new(vec![column("key"), column("value")])
}

impl Batches {
    pub(crate) fn new(handle: Handle, bounds: Bounds, rows: usize) -> PyResult<Batches> {
        if rows == 0 {
            return Err(PyValueError::new_err("rows must be at least 1"));
        }
        Ok(Batches {
            handle,
            bounds,
            rows,
        })
    }
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
        drop(requested_schema); // a wish, which a producer need not fulfil
        let walk = self.handle.walk(self.bounds.clone(), false);
        let (mut walk, rows, schema) = (walk.map_err(raise)?, self.rows, Arc::new(schema()));
        let batch_schema = Arc::clone(&schema);
        // Runs without the interpreter.
        let batches = iter::from_fn(move || {
            let ([keys, values], error) = walk.read(rows, MAX_BYTES);
            if let Some(error) = error {
                return Some(Err(ArrowError::ExternalError(Box::new(error))));
            }
            let columns: Vec<Arc<dyn Array>> = vec![Arc::new(keys), Arc::new(values)];
            let batch = RecordBatch::try_new(Arc::clone(&batch_schema), columns);
            Some(batch).filter(|batch| !batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0))
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

    fn __repr__(&self) -> &str {
        "<leveltable.Batches of key, value>"
    }
}

/// Writes a table of the rows of `data`, which has `__arrow_c_stream__`: a pyarrow or polars table, a reader, ..
///
/// The column `key` ascends, and each key is there once. Columns are binary or text. `options` are those of `TableBuilder`.
#[pyfunction]
#[pyo3(signature = (path, data, *, key = "key", value = "value", **options))]
pub(crate) fn write_arrow<'py>(
    py: Python<'py>,
    path: std::path::PathBuf,
    data: &Bound<'py, PyAny>,
    key: &str,
    value: &str,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options::of(py, options)?;
    if !data.hasattr("__arrow_c_stream__")? {
        return Err(wrong_type("data", "Arrow, with __arrow_c_stream__", data));
    }
    let reader = RecordBatchStreamReader::from_pyarrow_bound(data)?;
    let schema = reader.schema();
    for name in [key, value] {
        if schema.index_of(name).is_err() {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(PyValueError::new_err(format!(
                "no column {name:?} among {names}: name the columns by key= and value="
            )));
        }
    }
    let builder = Builder::create(&path, &options).map_err(raise)?;
    builder.write(py, |builder| {
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
fn rows<'a>(batch: &'a RecordBatch, name: &str) -> PyResult<Rows<'a>> {
    fn of<'a, T: AsRef<[u8]> + ?Sized + 'a>(
        column: impl ArrayAccessor<Item = &'a T> + 'a,
    ) -> Rows<'a> {
        Box::new(move |row| column.value(row).as_ref())
    }
    let wrong = |why: String| Err(PyValueError::new_err(format!("column {name:?} {why}")));
    let Some(column) = batch.column_by_name(name) else {
        return wrong("is missing in a batch".into());
    };
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
