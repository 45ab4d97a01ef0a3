//! The functions of programs and libraries, with those that were inlined.

use super::{Frame, Module, Recording};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use std::collections::HashMap;
use std::os::fd::AsRawFd;

/// A function in user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// The file it was written in, where that is known.
    pub source: Option<String>,
}

/// What each frame of user space stands for.
#[derive(Debug, Default)]
pub struct UserSymbols {
    lines: HashMap<(u32, u64), Vec<Line>>,
}

impl UserSymbols {
    /// Looks all frames of a recording up, file by file.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        let mut wanted: HashMap<u32, Vec<u64>> = HashMap::new();
        for frame in recording.frames() {
            if let Frame::User(Some((module, offset))) = frame {
                wanted.entry(*module).or_default().push(*offset);
            }
        }
        let mut symbols = Self::default();
        for (place, offsets) in wanted {
            if let Some(module) = recording.modules().get(place) {
                symbols.look_up(place, module, &offsets);
            }
        }
        symbols
    }

    fn look_up(&mut self, place: u32, module: &Module, offsets: &[u64]) {
        let Some(file) = &module.file else {
            return;
        };
        // Lines are needed for NetChannel's own code only, and those of other programs may be very large.
        let needs_lines = module.may_be_netchannel();
        let symbolizer = Symbolizer::builder()
            .enable_code_info(needs_lines)
            .enable_inlined_fns(needs_lines)
            .enable_auto_reload(false)
            .build();
        let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        elf.debug_syms = needs_lines;
        let source = Source::Elf(elf);
        let Ok(found) = symbolizer.symbolize(&source, Input::FileOffset(offsets)) else {
            return;
        };
        for (offset, symbol) in offsets.iter().zip(found) {
            if let Symbolized::Sym(symbol) = symbol {
                let line = |name: &str, code: Option<&CodeInfo>| Line {
                    name: short(name).to_owned(),
                    source: code.map(|code| code.to_path().display().to_string()),
                };
                // Told from outside in.
                let inlined = symbol.inlined.iter().rev();
                let mut lines: Vec<Line> = inlined
                    .map(|inner| line(&inner.name, inner.code_info.as_ref()))
                    .collect();
                lines.push(line(&symbol.name, symbol.code_info.as_deref()));
                self.lines.insert((place, *offset), lines);
            }
        }
    }

    /// The functions at a place, innermost first.
    #[must_use]
    pub fn lines(&self, module: u32, offset: u64) -> &[Line] {
        self.lines.get(&(module, offset)).map_or(&[], Vec::as_slice)
    }
}

/// A name without the hash that a Rust compiler hangs on to it, and without the version of a C library.
fn short(name: &str) -> &str {
    let name = name.split('@').next().unwrap_or(name);
    match name.rsplit_once("::h") {
        Some((short, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            short
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_without_what_tools_add() {
        assert_eq!(short("a::b::h0123456789abcdef"), "a::b");
        assert_eq!(short("a::b::hello"), "a::b::hello");
        assert_eq!(short("memcpy@@GLIBC_2.14"), "memcpy");
    }
}
