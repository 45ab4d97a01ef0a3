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

/// The functions of each frame in user space.
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
            .enable_demangling(false)
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
                    name: shown(name),
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

/// A name as its source has it. Only what is marked as made by a compiler is taken apart: to C++, a plain `w` of C is `wchar_t`.
fn shown(name: &str) -> String {
    // A C library's names have a version.
    let name = name.split('@').next().unwrap_or(name);
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok();
    let cpp = cpp.and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_their_source_has_them() {
        assert_eq!(shown("_ZN1a1b17h0123456789abcdefE"), "a::b");
        assert_eq!(shown("_ZN1a1bEi"), "a::b(int)");
        assert_eq!(shown("memcpy@@GLIBC_2.14"), "memcpy");
        assert_eq!(shown("w"), "w");
        assert_eq!(shown("_Zx"), "_Zx");
    }
}
