//! Chains with names: the functions of each frame of a recording, and their meaning in the taxonomy.

use crate::recording::{Frame, Line, Recording, UserSymbols};
use netchannel_taxonomy::{Chain, Judgement, Meaning, Taxonomy, classify};

/// One function, which may be inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    meaning: Meaning,
}

/// The functions of one frame.
#[derive(Debug, Default)]
struct Expanded {
    /// Innermost first.
    functions: Vec<Function>,
    is_kernel: bool,
    is_in_the_library: bool,
}

/// All chains of a recording, with names and judged.
pub struct Named<'a> {
    recording: &'a Recording,
    frames: Vec<Expanded>,
    judgements: Vec<Judgement>,
}

impl<'a> Named<'a> {
    /// Names and judges all.
    #[must_use]
    pub fn new(recording: &'a Recording, symbols: &UserSymbols, taxonomy: &Taxonomy) -> Self {
        let frames = recording.frames().iter();
        let mut named = Self {
            recording,
            frames: frames
                .map(|frame| expand(*frame, recording, symbols, taxonomy))
                .collect(),
            judgements: Vec::new(),
        };
        let mut kernel = Vec::new();
        let mut user = Vec::new();
        named.judgements = recording
            .chains()
            .map(|chain| named.judge(chain, &mut kernel, &mut user))
            .collect();
        named
    }

    fn judge(
        &self,
        chain: &[u32],
        kernel: &mut Vec<Meaning>,
        user: &mut Vec<Meaning>,
    ) -> Judgement {
        kernel.clear();
        user.clear();
        let mut is_in_the_library = false;
        for frame in chain.iter().filter_map(|number| self.frame(*number)) {
            if !frame.is_kernel && user.is_empty() {
                is_in_the_library = frame.is_in_the_library;
            }
            let list = if frame.is_kernel {
                &mut *kernel
            } else {
                &mut *user
            };
            list.extend(frame.functions.iter().map(|function| function.meaning));
        }
        classify(Chain {
            kernel,
            user,
            is_in_the_library,
        })
    }

    fn frame(&self, number: u32) -> Option<&Expanded> {
        self.frames.get(usize::try_from(number).ok()?)
    }

    /// The judgement of a chain.
    #[must_use]
    pub fn judgement(&self, chain: u32) -> Option<Judgement> {
        let place = usize::try_from(chain).ok()?;
        self.judgements.get(place).copied()
    }

    /// The functions of a chain, innermost first, and whether each is in the kernel.
    pub fn functions(&self, chain: u32) -> impl Iterator<Item = (&str, bool)> {
        self.recording
            .chain(chain)
            .iter()
            .filter_map(|number| self.frame(*number))
            .flat_map(|frame| {
                let functions = frame.functions.iter();
                functions.map(|function| (function.name.as_str(), frame.is_kernel))
            })
    }

    /// The recording.
    #[must_use]
    pub fn recording(&self) -> &Recording {
        self.recording
    }
}

fn expand(
    frame: Frame,
    recording: &Recording,
    symbols: &UserSymbols,
    taxonomy: &Taxonomy,
) -> Expanded {
    match frame {
        Frame::Kernel(place) => {
            let kernel = recording.kernel();
            let name = place.map_or("[unknown]", |place| kernel.name(place));
            let function = Function {
                meaning: taxonomy.kernel(name),
                name: name.to_owned(),
            };
            Expanded {
                functions: vec![function],
                is_kernel: true,
                is_in_the_library: false,
            }
        }
        Frame::User(None) => unnamed("[unknown]"),
        Frame::User(Some((place, offset))) => {
            let Some(module) = recording.modules().get(place) else {
                return unnamed("[unknown]");
            };
            let lines = symbols.lines(place, offset);
            let mut functions: Vec<Function> =
                lines.iter().map(|line| function(line, taxonomy)).collect();
            if functions.is_empty() {
                functions = unnamed(&format!("[{}]", module.name())).functions;
            }
            Expanded {
                functions,
                is_kernel: false,
                is_in_the_library: module.is_the_library(),
            }
        }
    }
}

fn function(line: &Line, taxonomy: &Taxonomy) -> Function {
    let meaning = match &line.source {
        Some(path) => taxonomy.source(path),
        None => taxonomy.user(&line.name),
    };
    Function {
        name: line.name.clone(),
        meaning,
    }
}

fn unnamed(name: &str) -> Expanded {
    let function = Function {
        name: name.to_owned(),
        meaning: Meaning::default(),
    };
    Expanded {
        functions: vec![function],
        ..Expanded::default()
    }
}
