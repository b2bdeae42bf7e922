//! Rows into columns, columns into row groups.

use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
};

use parquet::{
    basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical},
    data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type},
    errors::{ParquetError, Result},
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::types::{ColumnPath, Type},
};

/// Rows of a row group, which is held in memory until it is full: about 50 MB for 25 columns of numbers.
const GROUP_ROWS: usize = 1 << 18;

/// In place of parquet's own version, so that files change when what we write does.
const CREATED_BY: &str = concat!("punctual-eval ", env!("CARGO_PKG_VERSION"));

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// UTF-8; few different ones, often many times in a row.
    Text,
    /// 64 bits, signed; few different ones.
    Integer,
    /// The same, but rising from row to row, and hardly one twice: these are written as differences.
    Times,
    Double,
    Boolean,
}

/// A field of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Integer(Option<i64>),
    /// Not a number is null.
    Double(Option<f64>),
    Boolean(bool),
}

impl From<u8> for Value<'_> {
    fn from(value: u8) -> Self {
        Self::Integer(Some(value.into()))
    }
}

impl From<u32> for Value<'_> {
    fn from(value: u32) -> Self {
        Self::Integer(Some(value.into()))
    }
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Some(value).into()
    }
}

impl<T: TryInto<i64>> From<Option<T>> for Value<'_> {
    /// What is out of range is the greatest: 292 years, as nanoseconds.
    fn from(value: Option<T>) -> Self {
        Self::Integer(value.map(|value| value.try_into().unwrap_or(i64::MAX)))
    }
}

/// The values of a column since the last row group.
#[derive(Debug)]
enum Data {
    /// Each with how often it comes in a row.
    Text(Vec<(ByteArray, usize)>),
    Integer(Vec<i64>),
    Double(Vec<f64>),
    Boolean(Vec<bool>),
}

#[derive(Debug)]
pub(super) struct Column {
    name: String,
    kind: Kind,
    data: Data,
    /// 1 where there is a value, 0 where there is none; `None` if there always is one.
    levels: Option<Vec<i16>>,
}

impl Column {
    pub(super) fn new(name: &str, kind: Kind, nullable: bool) -> Self {
        let data = match kind {
            Kind::Text => Data::Text(Vec::new()),
            Kind::Integer | Kind::Times => Data::Integer(Vec::new()),
            Kind::Double => Data::Double(Vec::new()),
            Kind::Boolean => Data::Boolean(Vec::new()),
        };
        Self { name: name.to_owned(), kind, data, levels: nullable.then(Vec::new) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn field(&self) -> Result<Type> {
        let (physical, logical) = match self.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer | Kind::Times => (Physical::INT64, None),
            Kind::Double => (Physical::DOUBLE, None),
            Kind::Boolean => (Physical::BOOLEAN, None),
        };
        let repetition = if self.levels.is_some() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
    }

    /// Adds a value. Fails on one of another kind, and on none where there must be one.
    fn push(&mut self, value: Value<'_>) -> io::Result<()> {
        let there = match (&mut self.data, value) {
            (Data::Text(runs), Value::Text(text)) => {
                match runs.last_mut() {
                    Some((last, times)) if last.data() == text.as_bytes() => *times += 1,
                    _ => runs.push((text.into(), 1)),
                }
                true
            }
            (Data::Integer(values), Value::Integer(value)) => {
                values.extend(value);
                value.is_some()
            }
            (Data::Double(values), Value::Double(value)) => {
                let value = value.filter(|value| !value.is_nan());
                values.extend(value);
                value.is_some()
            }
            (Data::Boolean(values), Value::Boolean(value)) => {
                values.push(value);
                true
            }
            _ => return Err(misfit(format!("column `{}` does not hold {value:?}", self.name))),
        };
        match &mut self.levels {
            Some(levels) => levels.push(i16::from(there)),
            None if there => (),
            None => return Err(misfit(format!("column `{}` needs a value in every row", self.name))),
        }
        Ok(())
    }

    /// Writes all values, and forgets them.
    fn write(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let levels = self.levels.as_deref();
        match &mut self.data {
            Data::Text(runs) => {
                for (text, times) in runs.drain(..) {
                    // Not all at once: a handle is much larger than what it leads to.
                    let batch = vec![text; times.min(1024)];
                    for start in (0..times).step_by(batch.len()) {
                        let batch = &batch[..batch.len().min(times - start)];
                        writer.typed::<ByteArrayType>().write_batch(batch, None, None)?;
                    }
                }
            }
            Data::Integer(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)?;
                values.clear();
            }
            Data::Double(values) => {
                writer.typed::<DoubleType>().write_batch(values, levels, None)?;
                values.clear();
            }
            Data::Boolean(values) => {
                writer.typed::<BoolType>().write_batch(values, levels, None)?;
                values.clear();
            }
        }
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        Ok(())
    }
}

/// A Parquet file that takes rows.
pub(super) struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
}

impl<W: Write + Send> Table<W> {
    pub(super) fn new(writer: W, name: &str, columns: Vec<Column>) -> io::Result<Self> {
        let mut properties =
            WriterProperties::builder().set_created_by(CREATED_BY.to_owned()).set_compression(Compression::SNAPPY);
        for column in columns.iter().filter(|column| column.kind == Kind::Times) {
            let path = ColumnPath::from(column.name.as_str());
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
        let fields =
            columns.iter().map(|column| column.field().map(Arc::new)).collect::<Result<_>>().map_err(failed)?;
        let schema = Type::group_type_builder(name).with_fields(fields).build().map_err(failed)?;
        let writer =
            SerializedFileWriter::new(writer, Arc::new(schema), Arc::new(properties.build())).map_err(failed)?;
        Ok(Self { writer, columns, rows: 0 })
    }

    /// Adds a row. After an error the table cannot be used any more.
    pub(super) fn push<'a>(&mut self, row: impl IntoIterator<Item = Value<'a>>) -> io::Result<()> {
        let mut row = row.into_iter();
        for column in &mut self.columns {
            let value = row.next().ok_or_else(|| misfit(format!("a row ends before column `{}`", column.name)))?;
            column.push(value)?;
        }
        if row.next().is_some() {
            return Err(misfit(format!("a row has more than the {} columns", self.columns.len())));
        }
        self.rows += 1;
        if self.rows == GROUP_ROWS {
            self.write_group().map_err(failed)?;
        }
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let mut writer =
                group.next_column()?.ok_or_else(|| ParquetError::General("fewer columns than fields".to_owned()))?;
            column.write(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.write_group().map_err(failed)?;
        }
        self.writer.into_inner().map_err(failed)
    }
}

impl<W: Write + Send> fmt::Debug for Table<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("columns", &self.columns.len()).field("rows", &self.rows).finish_non_exhaustive()
    }
}

fn misfit(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// The writer's own error if it was that.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => error.downcast::<io::Error>().map_or_else(io::Error::other, |error| *error),
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

    fn table() -> Table<Vec<u8>> {
        let columns = [("a", Kind::Text, false), ("b", Kind::Integer, false), ("c", Kind::Times, true)];
        let columns = columns.map(|(name, kind, nullable)| Column::new(name, kind, nullable));
        Table::new(Vec::new(), "test", columns.into()).unwrap()
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let (text, one, none) = (Value::Text("x"), Value::from(1_u8), Value::Integer(None));
        for (row, says) in [
            (vec![text, one], "ends before column `c`"),
            (vec![text, one, one, one], "more than the 3 columns"),
            (vec![one, one, one], "column `a` does not hold"),
            (vec![text, none, one], "column `b` needs a value"),
        ] {
            let error = table().push(row).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!(table().push([text, one, none]).is_ok());
    }

    #[test]
    fn groups_are_split_and_no_row_is_lost() {
        let mut table = table();
        let rows = GROUP_ROWS + 5;
        for row in 0..rows as u64 {
            // Runs of text longer and shorter than a batch.
            let text = if row < 3000 { "long" } else { ["x", "y"][row as usize % 2] };
            let c = (row % 3 != 0).then_some(row * 1000);
            table.push([Value::Text(text), row.into(), c.into()]).unwrap();
        }
        let reader = SerializedFileReader::new(bytes::Bytes::from(table.finish().unwrap())).unwrap();
        let groups: Vec<_> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        assert_eq!(groups, [GROUP_ROWS as i64, 5]);
        let mut count = 0;
        for (expected, row) in (0..).zip(reader.get_row_iter(None).unwrap()) {
            let row: Vec<String> = row.unwrap().get_column_iter().map(|(_, field)| field.to_string()).collect();
            let text = if expected < 3000 { "\"long\"" } else { ["\"x\"", "\"y\""][expected % 2] };
            let c = if expected % 3 != 0 { (expected * 1000).to_string() } else { "null".to_owned() };
            assert_eq!(row, [text, &expected.to_string(), &c]);
            count += 1;
        }
        assert_eq!(count, rows);
    }

    #[test]
    fn a_writer_that_fails_is_heard() {
        #[derive(Debug)]
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = Table::new(Full, "test", vec![Column::new("a", Kind::Boolean, false)])
            .and_then(|mut table| table.push([Value::Boolean(true)]).and(table.finish()))
            .unwrap_err();
        assert!(error.to_string().contains("storage"), "{error}");
    }
}
