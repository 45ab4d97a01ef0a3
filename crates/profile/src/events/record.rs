//! Records as the kernel writes them, read into values.

use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_LOST, PERF_RECORD_MISC_COMM_EXEC,
    PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE,
};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One record.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// When, in nanoseconds of the monotonic clock.
    pub time: u64,
    /// Its content.
    pub what: What,
}

/// The content of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum What {
    /// A sample of a processor.
    Sample(Sample),
    /// A process mapped code.
    Map(Map),
    /// A thread has a name.
    Name {
        /// Its process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: String,
        /// Whether it executes another program from now on.
        is_exec: bool,
    },
    /// A process made another one, or a thread.
    Fork {
        /// The new one's process.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// The process of its parent.
        parent: u32,
    },
    /// The number of records without room.
    Lost(u64),
}

/// A sample of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The processor.
    pub processor: u32,
    /// The addresses of its chain, innermost first, with the kernel's marks of where they lie between them.
    pub chain: Vec<u64>,
}

/// Code that a process mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The process.
    pub pid: u32,
    /// From where.
    pub start: u64,
    /// The length.
    pub length: u64,
    /// From where in the file.
    pub offset: u64,
    /// Which file, so that another one of that path is not taken for it.
    pub inode: u64,
    /// Its path in the view of the process.
    pub path: PathBuf,
}

/// Words of a record, from the front.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn long(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    fn int(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*word))
    }

    fn text(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

/// The fields after every record except samples: process and thread, time, processor.
const TRAILER: usize = 24;

/// Reads one record after the other; what is not of use, or cannot be read, is left out.
pub fn read_all(mut bytes: &[u8], mut each: impl FnMut(Record)) {
    while let Some((kind, misc, length)) = header(bytes) {
        let Some((body, rest)) = bytes.split_at_checked(length).filter(|_| length >= 8) else {
            return;
        };
        bytes = rest;
        let body = body.get(8..).unwrap_or_default();
        let record = match kind {
            PERF_RECORD_SAMPLE => sample(body),
            _ => other(kind, misc, body),
        };
        if let Some(record) = record {
            each(record);
        }
    }
}

fn header(bytes: &[u8]) -> Option<(u32, u32, usize)> {
    let mut words = Words(bytes);
    let kind = words.int()?;
    let rest = words.int()?;
    Some((kind, rest & 0xffff, usize::try_from(rest >> 16).ok()?))
}

fn sample(body: &[u8]) -> Option<Record> {
    let mut words = Words(body);
    let (pid, tid) = (words.int()?, words.int()?);
    let time = words.long()?;
    let (processor, _) = (words.int()?, words.int()?);
    let count = usize::try_from(words.long()?).ok()?;
    let mut chain = Vec::with_capacity(count.min(words.0.len() / 8));
    for _ in 0..count {
        chain.push(words.long()?);
    }
    let what = What::Sample(Sample {
        pid,
        tid,
        processor,
        chain,
    });
    Some(Record { time, what })
}

fn other(kind: u32, misc: u32, body: &[u8]) -> Option<Record> {
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let time = Words(trailer.get(8..)?).long()?;
    let mut words = Words(body);
    let what = match kind {
        PERF_RECORD_MMAP2 => {
            let (pid, _tid) = (words.int()?, words.int()?);
            let (start, length, offset) = (words.long()?, words.long()?, words.long()?);
            let _device = words.long()?;
            let inode = words.long()?;
            let (_generation, _protection) = (words.long()?, words.long()?);
            What::Map(Map {
                pid,
                start,
                length,
                offset,
                inode,
                path: PathBuf::from(OsString::from_vec(words.text().to_vec())),
            })
        }
        PERF_RECORD_COMM => What::Name {
            pid: words.int()?,
            tid: words.int()?,
            name: String::from_utf8_lossy(words.text()).into_owned(),
            is_exec: misc & PERF_RECORD_MISC_COMM_EXEC != 0,
        },
        PERF_RECORD_FORK => {
            let (pid, parent) = (words.int()?, words.int()?);
            let tid = words.int()?;
            What::Fork { pid, tid, parent }
        }
        PERF_RECORD_LOST => {
            let _id = words.long()?;
            What::Lost(words.long()?)
        }
        _ => return None,
    };
    Some(Record { time, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len() + 8).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn longs(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn all(bytes: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        read_all(bytes, |record| records.push(record));
        records
    }

    #[test]
    fn records_are_read_and_those_of_no_use_left_out() {
        let trailer = longs(&[0, 99, 0]);
        let mut bytes = record(
            PERF_RECORD_SAMPLE,
            0,
            &longs(&[7 | 8 << 32, 5, 1, 2, 10, 11]),
        );
        bytes.extend(record(77, 0, &longs(&[1, 2, 3])));
        let mut name = longs(&[7 | 9 << 32]);
        name.extend(b"redis\0\0\0");
        name.extend(&trailer);
        bytes.extend(record(PERF_RECORD_COMM, 0x2000, &name));
        let mut map = longs(&[7, 0x1000, 0x2000, 0x3000, 0, 42, 0, 0]);
        map.extend(b"/bin/ls\0");
        map.extend(&trailer);
        bytes.extend(record(PERF_RECORD_MMAP2, 0, &map));
        let mut lost = longs(&[0, 12]);
        lost.extend(&trailer);
        bytes.extend(record(PERF_RECORD_LOST, 0, &lost));
        let whats: Vec<What> = all(&bytes).into_iter().map(|record| record.what).collect();
        let sample = Sample {
            pid: 7,
            tid: 8,
            processor: 1,
            chain: vec![10, 11],
        };
        let map = Map {
            pid: 7,
            start: 0x1000,
            length: 0x2000,
            offset: 0x3000,
            inode: 42,
            path: "/bin/ls".into(),
        };
        let name = What::Name {
            pid: 7,
            tid: 9,
            name: "redis".to_owned(),
            is_exec: true,
        };
        assert_eq!(
            whats,
            [What::Sample(sample), name, What::Map(map), What::Lost(12)]
        );
        assert_eq!(all(&bytes)[1].time, 99);
    }

    #[test]
    fn a_record_that_is_cut_off_ends_the_reading() {
        let bytes = record(PERF_RECORD_SAMPLE, 0, &longs(&[7, 5, 1, 100, 10]));
        assert_eq!(all(&bytes), []);
        assert_eq!(all(&bytes[..20]), []);
        assert_eq!(all(&[0; 16]), []);
    }
}
