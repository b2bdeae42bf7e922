//! Finished runs, kept as they come: an experiment that was interrupted goes on where it stopped.
//!
//! The file is a header and then frames, all numbers little-endian:
//!
//! ```text
//! header  "pnctjrnl"  version u32  fingerprint u64
//! frame   length u32  crc32 u32    cell u64  seed u32  postcard(what is kept of the run)
//!                                  └──────────── `length` bytes, under the CRC ────────┘
//! ```
//!
//! A frame is appended with a single write. What an interruption tore, or a disk damaged, fails its CRC when the journal is next
//! opened; the file is cut there, and those runs are made again. They come out the same, so nothing is lost but time. For that
//! reason, too, nothing is synced to the disk.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions, TryLockError},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    marker::PhantomData,
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};

const MAGIC: &[u8; 8] = b"pnctjrnl";

/// Counts up with every change of the frames, what is kept in them included: postcard does not describe itself.
const VERSION: u32 = 7;

const HEADER_LEN: u64 = 20;

/// Of a frame, what comes before the bytes under the CRC.
const PREFIX_LEN: u64 = 8;

const KEY_LEN: usize = 12;

/// Which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// Number of the cell: in the experiment's order, or as the keeper of the journal has it.
    pub cell: u64,
    /// The seed.
    pub seed: u32,
}

impl RunKey {
    fn to_bytes(self) -> [u8; KEY_LEN] {
        let mut bytes = [0; KEY_LEN];
        bytes[..8].copy_from_slice(&self.cell.to_le_bytes());
        bytes[8..].copy_from_slice(&self.seed.to_le_bytes());
        bytes
    }

    fn from_bytes([cell @ .., a, b, c, d]: [u8; KEY_LEN]) -> Self {
        Self { cell: u64::from_le_bytes(cell), seed: u32::from_le_bytes([a, b, c, d]) }
    }
}

/// Where a frame is.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Of its first byte.
    offset: u64,
    /// As the frame has it.
    length: u32,
}

/// An open journal of what is kept of runs, a `T` for each. One process at a time may have it.
#[derive(Debug)]
pub struct Journal<T> {
    file: File,
    /// Where the next frame goes; the file ends here.
    end: u64,
    places: HashMap<RunKey, Place>,
    kept: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens the journal at `path`, or begins one. Also returns the runs it has, in the order in which they were appended.
    ///
    /// `fingerprint` stands for all that the runs depend on: the experiment's text and the program. A journal with another one is
    /// of no use and is begun anew, as any is that is to be `fresh`. The whole file is read once, for the CRCs, in small pieces.
    ///
    /// # Errors
    ///
    /// Those of the file system; [`WouldBlock`](io::ErrorKind::WouldBlock) if somebody else has it open; and
    /// [`InvalidData`](io::ErrorKind::InvalidData) if there is a file at `path` that is not a journal, which is left alone.
    pub fn open(path: &Path, fingerprint: u64, fresh: bool) -> io::Result<(Self, Vec<RunKey>)> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(fingerprint.to_le_bytes());

        let mut found = Vec::new();
        (&mut file).take(HEADER_LEN).read_to_end(&mut found)?;
        let magic = &found[..found.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            let message = format!("{} is not a journal of runs; move it away", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        if found != header || fresh {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&header)?;
        }
        let mut journal = Self { file, end: HEADER_LEN, places: HashMap::new(), kept: PhantomData };
        let keys = journal.scan()?;
        journal.file.set_len(journal.end)?;
        Ok((journal, keys))
    }

    /// Goes through the frames up to the first that is not whole; `end` is where that begins.
    fn scan(&mut self) -> io::Result<Vec<RunKey>> {
        let file_len = self.file.metadata()?.len();
        let mut keys = Vec::new();
        let mut reader = BufReader::with_capacity(1 << 16, &self.file);
        reader.seek(SeekFrom::Start(self.end))?;
        while let Some((key, length)) = scan_frame(&mut reader, file_len - self.end)? {
            if self.places.insert(key, Place { offset: self.end, length }).is_none() {
                keys.push(key);
            }
            self.end += PREFIX_LEN + u64::from(length);
        }
        Ok(keys)
    }

    /// Appends a run. Of several with the same key, the last one counts.
    ///
    /// # Errors
    ///
    /// Those of the file system; the journal is then as it was before, and more can be tried.
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the record is larger than 4 GB.
    pub fn append(&mut self, key: RunKey, run: &T) -> io::Result<()> {
        let mut frame = vec![0; PREFIX_LEN as usize];
        frame.extend(key.to_bytes());
        let mut frame = postcard::to_extend(run, frame).map_err(io::Error::other)?;
        let body = &frame[PREFIX_LEN as usize..];
        let length = u32::try_from(body.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the record of a run is larger than 4 GB"))?;
        let prefix = prefix_of(body);
        frame[..PREFIX_LEN as usize].copy_from_slice(&prefix);

        self.file.seek(SeekFrom::Start(self.end))?;
        if let Err(error) = self.file.write_all(&frame) {
            // Best effort: if this fails too, the next frame overwrites the torn one, or opening drops it.
            let _ = self.file.set_len(self.end);
            return Err(error);
        }
        self.places.insert(key, Place { offset: self.end, length });
        self.end += frame.len() as u64;
        Ok(())
    }

    /// Reads a run; `None` if the journal does not have it.
    ///
    /// # Errors
    ///
    /// Those of the file system; and [`InvalidData`](io::ErrorKind::InvalidData) if the file was changed since it was opened, or
    /// written by another version of the program under the same fingerprint: such a journal is to be deleted.
    pub fn read(&mut self, key: RunKey) -> io::Result<Option<T>> {
        let Some(&Place { offset, length }) = self.places.get(&key) else { return Ok(None) };
        self.file.seek(SeekFrom::Start(offset))?;
        let mut prefix = [0; PREFIX_LEN as usize];
        self.file.read_exact(&mut prefix)?;
        // The length was checked against the file's when it was opened, so this is no more than is there.
        let mut body = vec![0; length as usize];
        self.file.read_exact(&mut body)?;
        let unreadable = || {
            let message = format!("the run of cell {}, seed {} cannot be read; delete the journal", key.cell, key.seed);
            io::Error::new(io::ErrorKind::InvalidData, message)
        };
        let body = (prefix == prefix_of(&body)).then_some(body).ok_or_else(unreadable)?;
        let run = body.get(KEY_LEN..).and_then(|run| postcard::from_bytes(run).ok());
        run.map(Some).ok_or_else(unreadable)
    }
}

/// What comes before these bytes, fewer than 4 GB.
fn prefix_of(body: &[u8]) -> [u8; PREFIX_LEN as usize] {
    let mut prefix = [0; PREFIX_LEN as usize];
    prefix[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    prefix
}

/// Checks the next frame, of which there can be at most `left` bytes. `None` if it is not whole.
fn scan_frame(reader: &mut impl Read, left: u64) -> io::Result<Option<(RunKey, u32)>> {
    if left < PREFIX_LEN + KEY_LEN as u64 {
        return Ok(None);
    }
    let (mut length, mut crc, mut key) = ([0; 4], [0; 4], [0; KEY_LEN]);
    reader.read_exact(&mut length)?;
    reader.read_exact(&mut crc)?;
    reader.read_exact(&mut key)?;
    let length = u32::from_le_bytes(length);
    let Some(mut unread) = u64::from(length).checked_sub(KEY_LEN as u64) else { return Ok(None) };
    if u64::from(length) > left - PREFIX_LEN {
        return Ok(None);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&key);
    let mut piece = [0; 1 << 13];
    while unread > 0 {
        let piece = &mut piece[..usize::try_from(unread).unwrap_or(usize::MAX).min(1 << 13)];
        reader.read_exact(piece)?;
        hasher.update(piece);
        unread -= piece.len() as u64;
    }
    Ok((hasher.finalize() == u32::from_le_bytes(crc)).then(|| (RunKey::from_bytes(key), length)))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use proptest::prelude::*;

    use super::*;
    use crate::{
        measure::BoundFigures,
        record::{BlockRow, RunRecord},
    };

    type Kept = (RunRecord, BoundFigures);

    const KEYS: [RunKey; 3] = [RunKey { cell: 0, seed: 1 }, RunKey { cell: 0, seed: 2 }, RunKey { cell: 7, seed: 1 }];

    /// The run that is kept under a key.
    fn run(key: RunKey) -> Kept {
        let block = BlockRow { size: key.seed, delivered: Some(1 << 40), ..BlockRow::default() };
        let record = RunRecord { blocks: vec![block; 50], events: key.cell, ..RunRecord::default() };
        (record, BoundFigures { on_time: key.cell, up_to_priority: vec![(0, 3)], ..BoundFigures::default() })
    }

    fn append(journal: &mut Journal<Kept>, key: RunKey) {
        journal.append(key, &run(key)).unwrap();
    }

    fn open(path: &Path, fingerprint: u64) -> (Journal<Kept>, Vec<RunKey>) {
        Journal::open(path, fingerprint, false).unwrap()
    }

    /// A closed journal with the three runs.
    fn journal() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut journal, keys) = open(&path, 5);
        assert!(keys.is_empty());
        KEYS.into_iter().for_each(|key| append(&mut journal, key));
        (dir, path)
    }

    #[test]
    fn what_was_appended_is_there_again() {
        let (_dir, path) = journal();
        let (mut journal, keys) = open(&path, 5);
        assert_eq!(keys, KEYS);
        for key in KEYS.into_iter().rev() {
            assert_eq!(journal.read(key).unwrap(), Some(run(key)));
        }
        assert_eq!(journal.read(RunKey { cell: 9, seed: 9 }).unwrap(), None);
    }

    #[test]
    fn reading_and_appending_mix() {
        let (_dir, path) = journal();
        let (mut journal, _) = open(&path, 5);
        assert!(journal.read(KEYS[0]).unwrap().is_some());
        let new = RunKey { cell: 8, seed: 8 };
        append(&mut journal, new);
        assert_eq!(journal.read(new).unwrap(), Some(run(new)));
        drop(journal);
        let (mut journal, keys) = open(&path, 5);
        assert_eq!(keys.len(), 4);
        assert_eq!(journal.read(new).unwrap(), Some(run(new)));
    }

    #[test]
    fn of_two_with_one_key_the_last_counts() {
        let (_dir, path) = journal();
        let (mut journal, _) = open(&path, 5);
        journal.append(KEYS[0], &run(KEYS[2])).unwrap();
        drop(journal);
        let (mut journal, keys) = open(&path, 5);
        assert_eq!(keys, KEYS);
        assert_eq!(journal.read(KEYS[0]).unwrap(), Some(run(KEYS[2])));
    }

    #[test]
    fn another_fingerprint_begins_anew() {
        let (_dir, path) = journal();
        let (mut journal, keys) = open(&path, 6);
        assert!(keys.is_empty());
        assert_eq!(fs::metadata(&path).unwrap().len(), HEADER_LEN);
        append(&mut journal, KEYS[1]);
        drop(journal);
        assert_eq!(open(&path, 6).1, [KEYS[1]]);
    }

    #[test]
    fn a_fresh_one_begins_anew() {
        let (_dir, path) = journal();
        let (_journal, keys) = Journal::<Kept>::open(&path, 5, true).unwrap();
        assert!(keys.is_empty());
        assert_eq!(fs::metadata(&path).unwrap().len(), HEADER_LEN);
    }

    #[test]
    fn it_is_one_process_own() {
        let (_dir, path) = journal();
        let (journal, _) = open(&path, 5);
        for fresh in [false, true] {
            let error = Journal::<Kept>::open(&path, 5, fresh).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        drop(journal);
        assert_eq!(open(&path, 5).1, KEYS);
    }

    #[test]
    fn a_torn_tail_is_dropped_wherever_it_tore() {
        let (_dir, path) = journal();
        let whole = fs::read(&path).unwrap();
        let frame = (whole.len() - HEADER_LEN as usize) / 3;
        for len in (0..whole.len()).filter(|len| len % frame < 60 || len % 50 == 0) {
            fs::write(&path, &whole[..len]).unwrap();
            let (mut journal, keys) = open(&path, 5);
            assert_eq!(keys, KEYS[..len.saturating_sub(HEADER_LEN as usize) / frame], "{len}");
            append(&mut journal, KEYS[2]);
            drop(journal);
            let (mut journal, again) = open(&path, 5);
            assert_eq!(again.len(), keys.len() + 1, "{len}");
            assert_eq!(journal.read(KEYS[2]).unwrap(), Some(run(KEYS[2])), "{len}");
        }
    }

    #[test]
    fn another_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for content in ["Dear diary, today I", "p", "pnct?"] {
            fs::write(&path, content).unwrap();
            let opened = Journal::<Kept>::open(&path, 5, false);
            if content == "p" {
                // The beginning of a header: it was torn while the journal was made.
                assert!(opened.is_ok());
            } else {
                let error = opened.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                assert!(error.to_string().contains("not a journal"));
                assert_eq!(fs::read_to_string(&path).unwrap(), content);
            }
        }
    }

    #[test]
    fn a_valid_frame_of_something_else_is_an_error() {
        let (_dir, path) = journal();
        let body = [&KEYS[0].to_bytes()[..], &[0xff; 40]].concat();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&[&prefix_of(&body)[..], &body].concat()).unwrap();
        let (mut journal, keys) = open(&path, 5);
        assert_eq!(keys, KEYS);
        assert_eq!(journal.read(KEYS[0]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(journal.read(KEYS[1]).unwrap().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A changed byte never goes unseen, and what is before it stays.
        #[test]
        fn damage_costs_only_what_follows(place in 0.0..1.0_f64, flip in 1_u8..) {
            let (_dir, path) = journal();
            let mut bytes = fs::read(&path).unwrap();
            let place = HEADER_LEN as usize + (place * (bytes.len() - HEADER_LEN as usize) as f64) as usize;
            bytes[place] ^= flip;
            fs::write(&path, &bytes).unwrap();
            let (mut journal, keys) = open(&path, 5);
            let frame = (bytes.len() - HEADER_LEN as usize).div_ceil(3);
            prop_assert_eq!(keys.len(), (place - HEADER_LEN as usize) / frame);
            for key in keys {
                prop_assert_eq!(journal.read(key).unwrap(), Some(run(key)));
            }
        }

        /// Whatever follows the header, opening and reading end without a panic.
        #[test]
        fn any_content_is_survived(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let (_dir, path) = journal();
            let header = fs::read(&path).unwrap()[..HEADER_LEN as usize].to_vec();
            fs::write(&path, [header, content].concat()).unwrap();
            let (mut journal, keys) = open(&path, 5);
            keys.into_iter().for_each(|key| drop(journal.read(key)));
        }
    }
}
