//! Entries as Arrow record batches, by the C stream interface: pyarrow, DuckDB, polars and pandas take them without a copy.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, LargeBinaryArray, RecordBatch, RecordBatchReader};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_pyarrow::FromPyArrow as _;
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::builder::{Builder, Options};
use crate::errors::{other, raise, wrong_type};
use crate::handle::Handle;
use crate::keys::Bounds;
use crate::report;
use crate::walk::{Chunk, Walk};

/// Most bytes of a batch, unless one entry alone has more.
const MAX_BYTES: usize = 64 << 20;

/// The entries of a range, as record batches. Each stream that is asked for walks the range from its start.
#[pyclass(frozen, module = "leveltable")]
pub(crate) struct Batches {
    handle: Handle,
    bounds: Bounds,
    rows: usize,
    schema: SchemaRef,
}

impl Batches {
    pub(crate) fn new(handle: Handle, bounds: Bounds, rows: usize) -> PyResult<Batches> {
        if rows == 0 {
            return Err(PyValueError::new_err("rows must be at least 1"));
        }
        let column = |name| Field::new(name, DataType::LargeBinary, false);
        let fields = vec![column("key"), column("value")];
        Ok(Batches {
            handle,
            bounds,
            rows,
            schema: Arc::new(Schema::new(fields)),
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
        let walk = self
            .handle
            .walk(self.bounds.clone(), false)
            .map_err(raise)?;
        let stream = Stream {
            walk: Some(walk),
            rows: self.rows,
            key_bytes: 0,
            value_bytes: 0,
            schema: self.schema.clone(),
        };
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema);
        let schema = schema.map_err(|error| other(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self) -> String {
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str());
        let columns = columns.collect::<Vec<_>>().join(", ");
        format!("<leveltable.Batches of {columns}>")
    }
}

/// Record batches of a walk. Runs without the interpreter.
struct Stream {
    /// `None` after the end or an error.
    walk: Option<Box<dyn Walk>>,
    rows: usize,
    /// Those of the last batch.
    key_bytes: usize,
    value_bytes: usize,
    schema: SchemaRef,
}

impl Stream {
    fn read(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(walk) = &mut self.walk else {
            return Ok(None);
        };
        // As large as the last one, and somewhat larger.
        let mut chunk = Chunk::default();
        chunk.keys.reserve(self.key_bytes + self.key_bytes / 8);
        chunk
            .values
            .reserve(self.value_bytes + self.value_bytes / 8);
        let goes_on = walk.fill(&mut chunk, self.rows, MAX_BYTES);
        if !goes_on.map_err(|error| ArrowError::ExternalError(Box::new(error)))? {
            self.walk = None;
        }
        (self.key_bytes, self.value_bytes) = (chunk.keys.len(), chunk.values.len());
        if chunk.len() == 0 {
            return Ok(None);
        }
        let columns = vec![
            column(chunk.key_ends, chunk.keys)?,
            column(chunk.value_ends, chunk.values)?,
        ];
        RecordBatch::try_new(self.schema.clone(), columns).map(Some)
    }
}

fn column(ends: Vec<i64>, bytes: Vec<u8>) -> Result<Arc<dyn Array>, ArrowError> {
    let ends = OffsetBuffer::new(ends.into());
    let column = LargeBinaryArray::try_new(ends, Buffer::from_vec(bytes), None)?;
    Ok(Arc::new(column))
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.walk = None;
        }
        read.transpose()
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
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
    let options = Options::of(options)?;
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
    let mut builder = Builder::create(&path, &options).map_err(raise)?;
    let written = py.detach(|| -> PyResult<()> {
        for batch in reader {
            let batch = batch.map_err(|error| other(format!("reading a batch: {error}")))?;
            add(&mut builder, &batch, key, value)?;
            Python::attach(|py| py.check_signals())?;
        }
        Ok(())
    });
    if let Err(error) = written {
        py.detach(|| builder.abort()).map_err(raise)?;
        return Err(error);
    }
    let summary = py.detach(|| builder.finish()).map_err(raise)?;
    report::summary(py, &summary)
}

/// Adds the rows of a batch.
fn add(builder: &mut Builder, batch: &RecordBatch, key: &str, value: &str) -> PyResult<()> {
    let (keys, values) = (Column::of(batch, key)?, Column::of(batch, value)?);
    for row in 0..batch.num_rows() {
        builder.add(keys.get(row), values.get(row)).map_err(raise)?;
    }
    Ok(())
}

/// A column of bytes or text. A row that does not exist is empty.
struct Column<'a>(Box<dyn Fn(usize) -> &'a [u8] + 'a>);

impl<'a> Column<'a> {
    fn of(batch: &'a RecordBatch, name: &str) -> PyResult<Column<'a>> {
        let Some(column) = batch.column_by_name(name) else {
            return Err(PyValueError::new_err(format!(
                "a batch without the column {name:?}"
            )));
        };
        if column.null_count() > 0 {
            let what =
                format!("column {name:?} has nulls: a table holds keys and values of bytes only");
            return Err(PyValueError::new_err(what));
        }
        Ok(Column(match column.data_type() {
            DataType::Binary => {
                let array = column.as_binary::<i32>();
                Box::new(|row| array.value(row))
            }
            DataType::LargeBinary => {
                let array = column.as_binary::<i64>();
                Box::new(|row| array.value(row))
            }
            DataType::BinaryView => {
                let array = column.as_binary_view();
                Box::new(|row| array.value(row))
            }
            DataType::Utf8 => {
                let array = column.as_string::<i32>();
                Box::new(|row| array.value(row).as_bytes())
            }
            DataType::LargeUtf8 => {
                let array = column.as_string::<i64>();
                Box::new(|row| array.value(row).as_bytes())
            }
            DataType::Utf8View => {
                let array = column.as_string_view();
                Box::new(|row| array.value(row).as_bytes())
            }
            other => {
                let what = format!("column {name:?} is of type {other}: cast it to binary or text");
                return Err(PyValueError::new_err(what));
            }
        }))
    }

    fn get(&self, row: usize) -> &'a [u8] {
        (self.0)(row)
    }
}
