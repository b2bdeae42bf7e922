use std::collections::BTreeMap;

use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};

use super::*;
use crate::{
    measure::{MeasureConfig, Run},
    record::LostBytes,
};

fn axes() -> Vec<String> {
    vec!["bandwidth".to_owned(), "size".to_owned()]
}

fn params() -> Vec<(String, String)> {
    vec![("bandwidth".to_owned(), "1 MB/s".to_owned()), ("size".to_owned(), "200 KB".to_owned())]
}

fn record() -> RunRecord {
    let on_time = BlockRow {
        source: 1,
        priority: 2,
        size: u32::MAX,
        deadline: Some(200_000_000),
        handed_over: 1_000_000_000,
        first_sent: Some(1_001_000_000),
        last_sent: Some(1_002_000_000),
        first_arrived: Some(1_003_000_000),
        complete: Some(1_004_000_000),
        delivered: Some(1_005_000_000),
        usable: Some(1_005_000_000),
        ending: Ending::Delivered,
        good_bytes: 1,
        arrived_bytes: 2,
        source_bytes: 3,
        resent_bytes: 4,
        copied_bytes: 5,
        repair_bytes: 6,
    };
    let lost = BlockRow { ending: Ending::DependencyDropped, ..BlockRow::default() };
    let sources = vec!["audio".to_owned(), "video".to_owned()];
    let path = |source| PathRow { sent: SentBytes { source, repair: 5, ..SentBytes::default() }, ..PathRow::default() };
    RunRecord {
        blocks: vec![on_time, lost],
        sources,
        paths: vec![path(1), path(2)],
        lost: LostBytes { restored: 11, resend_regained: 12, copy_regained: 13, never_regained: 14 },
        wasted_bytes: 15,
        duration: 60,
        events: 7,
        ..RunRecord::default()
    }
}

fn bound() -> BoundFigures {
    BoundFigures {
        on_time: 1,
        up_to_priority: vec![(0, 0), (2, 1)],
        weighted: 0.5,
        bytes_on_time: 9,
        average_on_time: 0.75,
        decodable: None,
    }
}

fn blocks_file() -> Vec<u8> {
    let mut file = BlocksFile::new(Vec::new(), &axes()).unwrap();
    for seed in [1, 2] {
        file.push(&RunLabel { params: &params(), contender: "ads", seed }, &record()).unwrap();
    }
    file.finish().unwrap()
}

fn runs_file() -> Vec<u8> {
    let mut file = RunsFile::new(Vec::new(), &axes()).unwrap();
    let values = Run::new(&record(), &bound(), &MeasureConfig::default()).values();
    file.push(&RunLabel { params: &params(), contender: "ads", seed: 1 }, &values, 2, &record(), &bound()).unwrap();
    file.finish().unwrap()
}

/// The rows by parquet's own reader.
fn read(file: Vec<u8>) -> Vec<BTreeMap<String, Field>> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().into_columns().into_iter().collect()).collect()
}

#[test]
fn blocks_come_back_as_they_were() {
    let rows = read(blocks_file());
    assert_eq!(rows.len(), 4);
    let text = |text: &str| Field::Str(text.to_owned());
    let expected = [
        ("bandwidth", text("1 MB/s")),
        ("axis_size", text("200 KB")),
        ("contender", text("ads")),
        ("seed", Field::Long(1)),
        ("source", text("video")),
        ("priority", Field::Long(2)),
        ("size", Field::Long(u32::MAX.into())),
        ("deadline_ns", Field::Long(200_000_000)),
        ("handed_over_ns", Field::Long(1_000_000_000)),
        ("first_sent_ns", Field::Long(1_001_000_000)),
        ("last_sent_ns", Field::Long(1_002_000_000)),
        ("first_arrived_ns", Field::Long(1_003_000_000)),
        ("complete_ns", Field::Long(1_004_000_000)),
        ("delivered_ns", Field::Long(1_005_000_000)),
        ("usable_ns", Field::Long(1_005_000_000)),
        ("latency_ns", Field::Long(5_000_000)),
        ("on_time", Field::Bool(true)),
        ("ending", text("delivered")),
        ("good_bytes", Field::Long(1)),
        ("arrived_bytes", Field::Long(2)),
        ("source_bytes", Field::Long(3)),
        ("resent_bytes", Field::Long(4)),
        ("copied_bytes", Field::Long(5)),
        ("repair_bytes", Field::Long(6)),
    ];
    assert_eq!(rows[0], expected.map(|(name, field)| (name.to_owned(), field)).into_iter().collect());
    assert_eq!(rows[1]["deadline_ns"], Field::Null);
    assert_eq!(rows[1]["delivered_ns"], Field::Null);
    assert_eq!(rows[1]["latency_ns"], Field::Null);
    assert_eq!(rows[1]["on_time"], Field::Bool(false));
    assert_eq!(rows[1]["ending"], text("dependency-dropped"));
    assert_eq!(rows[2]["seed"], Field::Long(2));
}

#[test]
fn runs_have_every_measure() {
    let rows = read(runs_file());
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["on_time"], Field::Double(0.5));
    assert_eq!(row["p99_ms"], Field::Double(f64::INFINITY));
    assert_eq!(row["jain"], Field::Null);
    assert!(MEASURES.iter().all(|measure| row.contains_key(measure.key)));
    assert_eq!(row["size"], Field::Str("200 KB".to_owned()));
    assert_eq!(row["blocks"], Field::Long(2));
    assert_eq!([&row["source_bytes"], &row["repair_bytes"]], [&Field::Long(3), &Field::Long(10)]);
    let fates = ["restored", "resend_regained", "copy_regained", "never_regained", "wasted"];
    assert_eq!(fates.map(|fate| row[&format!("{fate}_bytes")].clone()), [11, 12, 13, 14, 15].map(Field::Long));
    let paths =
        "[{\"source\":1,\"resent\":0,\"copied\":0,\"repair\":5},{\"source\":2,\"resent\":0,\"copied\":0,\"repair\":5}]";
    assert_eq!(row["paths"], Field::Str(paths.to_owned()));
    assert_eq!(row["bound_on_time"], Field::Long(1));
    assert_eq!(row["bound_up_to_priority"], Field::Str("{\"0\":0,\"2\":1}".to_owned()));
    assert_eq!(row["bound_weighted"], Field::Double(0.5));
    assert_eq!(row["bound_bytes_on_time"], Field::Long(9));
}

#[test]
fn files_are_equal_to_the_byte() {
    assert!(blocks_file() == blocks_file());
    assert!(runs_file() == runs_file());
}

#[test]
fn files_without_rows_can_be_read() {
    assert!(read(BlocksFile::new(Vec::new(), &axes()).unwrap().finish().unwrap()).is_empty());
    assert!(read(RunsFile::new(Vec::new(), &[]).unwrap().finish().unwrap()).is_empty());
}

#[test]
fn a_label_of_another_experiment_is_refused() {
    let mut file = BlocksFile::new(Vec::new(), &axes()).unwrap();
    let error = file.push(&RunLabel { params: &params()[..1], contender: "ads", seed: 1 }, &record()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let mut file = RunsFile::new(Vec::new(), &axes()).unwrap();
    let error = file
        .push(&RunLabel { params: &params(), contender: "ads", seed: 1 }, &[None], 2, &record(), &bound())
        .unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
