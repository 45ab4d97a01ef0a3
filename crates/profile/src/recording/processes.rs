//! The known processes: their names, and the code in their address spaces.

use super::Thread;
use super::modules::Modules;
use crate::events::Map;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Code that is mapped.
#[derive(Clone, Copy, Debug)]
struct Range {
    end: u64,
    offset: u64,
    module: u32,
}

#[derive(Clone, Debug, Default)]
struct Process {
    name: Option<String>,
    ranges: BTreeMap<u64, Range>,
}

impl Process {
    fn map(&mut self, start: u64, range: Range) {
        let end = range.end;
        // A former mapping is replaced, except for its parts outside of the new one.
        let below: Vec<u64> = self.ranges.range(..end).map(|(start, _)| *start).collect();
        for other in below.into_iter().rev() {
            let Some(former) = self.ranges.get(&other).copied() else {
                continue;
            };
            if former.end <= start {
                break;
            }
            self.ranges.remove(&other);
            if other < start {
                self.ranges.insert(
                    other,
                    Range {
                        end: start,
                        ..former
                    },
                );
            }
            if former.end > end {
                let offset = former.offset + (end - other);
                self.ranges.insert(end, Range { offset, ..former });
            }
        }
        self.ranges.insert(start, range);
    }

    fn find(&self, address: u64) -> Option<(u32, u64)> {
        let (start, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then(|| (range.module, address - start + range.offset))
    }
}

/// All processes and threads that were met.
#[derive(Debug, Default)]
pub struct Processes {
    all: HashMap<u32, Process>,
    /// The names of threads that differ from the name of their process.
    names: HashMap<u32, String>,
    threads: Vec<Thread>,
    places: HashMap<(u32, u32), u32>,
}

impl Processes {
    /// A process maps code.
    pub fn on_map(&mut self, map: &Map, modules: &mut Modules) {
        // Mappings from before it was known count too.
        self.discover(map.pid, modules);
        let module = modules.place(map.pid, &map.path, map.inode);
        let range = Range {
            end: map.start.saturating_add(map.length),
            offset: map.offset,
            module,
        };
        self.all.entry(map.pid).or_default().map(map.start, range);
    }

    /// A thread gets a name, perhaps since its process executes another program.
    pub fn on_name(&mut self, pid: u32, tid: u32, name: String, is_exec: bool) {
        // From this point on it is shown as another thread.
        self.places.remove(&(pid, tid));
        if is_exec {
            let fresh = Process {
                name: Some(name),
                ranges: BTreeMap::new(),
            };
            self.all.insert(pid, fresh);
            self.names.remove(&tid);
            return;
        }
        if pid == tid {
            self.all.entry(pid).or_default().name = Some(name.clone());
        }
        self.names.insert(tid, name);
    }

    /// A process makes another one, or a thread.
    pub fn on_fork(&mut self, pid: u32, tid: u32, parent: u32) {
        if pid != parent {
            let child = self.all.get(&parent).cloned();
            // Its parent may have to be found first: then the child is found later.
            match child {
                Some(child) => drop(self.all.insert(pid, child)),
                None => drop(self.all.remove(&pid)),
            }
        }
        self.places.remove(&(pid, tid));
        self.names.remove(&tid);
    }

    /// Reads the state of a process that existed before the samples began.
    pub fn discover(&mut self, pid: u32, modules: &mut Modules) {
        if pid == 0 || self.all.contains_key(&pid) {
            return;
        }
        let mut process = Process {
            name: read(&format!("/proc/{pid}/comm")),
            ranges: BTreeMap::new(),
        };
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for (start, end, offset, inode, path) in maps.lines().filter_map(code) {
            let module = modules.place(pid, path, inode);
            let range = Range {
                end,
                offset,
                module,
            };
            process.map(start, range);
        }
        self.all.insert(pid, process);
    }

    /// The code at an address of a process: its module, and the place in the file.
    pub fn find(&self, pid: u32, address: u64) -> Option<(u32, u64)> {
        self.all.get(&pid)?.find(address)
    }

    /// The place of a thread among [`Processes::threads`].
    pub fn thread(&mut self, pid: u32, tid: u32) -> u32 {
        if let Some(place) = self.places.get(&(pid, tid)) {
            return *place;
        }
        let known = self.all.get(&pid).and_then(|process| process.name.clone());
        let program = match known {
            Some(name) => name,
            None if pid == 0 => "(idle)".to_owned(),
            None => format!("({pid})"),
        };
        let name = self.names.get(&tid).cloned();
        let name = name.or_else(|| read(&format!("/proc/{pid}/task/{tid}/comm")));
        self.threads.push(Thread {
            pid,
            tid,
            name: name.unwrap_or_else(|| program.clone()),
            program,
        });
        let place = super::last(self.threads.len());
        self.places.insert((pid, tid), place);
        place
    }

    /// All threads that were sampled.
    pub fn threads(&self) -> Vec<Thread> {
        self.threads.clone()
    }
}

fn read(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

/// A line of `/proc/PID/maps`, where it is of code: start, end, place in the file, inode, path.
fn code(line: &str) -> Option<(u64, u64, u64, u64, &Path)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let _device = words.next()?;
    let inode = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or_default().trim();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let number = |text| u64::from_str_radix(text, 16).ok();
    let path = if path.is_empty() { "[anonymous]" } else { path };
    rights.contains('x').then_some(())?;
    Some((
        number(start)?,
        number(end)?,
        number(offset)?,
        inode,
        Path::new(path),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(end: u64, offset: u64, module: u32) -> Range {
        Range {
            end,
            offset,
            module,
        }
    }

    #[test]
    fn what_is_mapped_over_is_gone_but_for_what_sticks_out() {
        let mut process = Process::default();
        process.map(0x1000, range(0x5000, 0, 1));
        process.map(0x2000, range(0x3000, 0x100, 2));
        assert_eq!(process.find(0x1fff), Some((1, 0xfff)));
        assert_eq!(process.find(0x2010), Some((2, 0x110)));
        assert_eq!(process.find(0x3000), Some((1, 0x2000)));
        assert_eq!(process.find(0x5000), None);
        process.map(0x0, range(0x9000, 0, 3));
        assert_eq!(process.find(0x2010), Some((3, 0x2010)));
        assert_eq!(process.ranges.len(), 1);
    }

    #[test]
    fn lines_of_maps_are_code_where_it_may_be_executed() {
        let line =
            "55d0-55f0 r-xp 00002000 08:01 1234                       /usr/bin/a b (deleted)";
        let found = code(line).unwrap();
        assert_eq!(
            found,
            (0x55d0, 0x55f0, 0x2000, 1234, Path::new("/usr/bin/a b"))
        );
        assert_eq!(code("1-2 rw-p 0 00:00 0 [heap]"), None);
        assert_eq!(
            code("1-2 r-xp 0 00:00 0 ").unwrap().4,
            Path::new("[anonymous]")
        );
    }

    #[test]
    fn a_program_that_executes_another_is_another_in_what_is_shown() {
        let mut processes = Processes::default();
        processes.on_name(4_000_000, 4_000_000, "sh".to_owned(), true);
        let first = processes.thread(4_000_000, 4_000_000);
        processes.on_name(4_000_000, 4_000_000, "cat".to_owned(), true);
        let second = processes.thread(4_000_000, 4_000_000);
        let programs: Vec<_> = processes.threads().into_iter().map(|t| t.program).collect();
        assert_eq!((first, second), (0, 1));
        assert_eq!(programs, ["sh", "cat"]);
    }
}
