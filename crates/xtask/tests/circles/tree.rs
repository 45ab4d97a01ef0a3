//! The modules of a crate as its folders have them, and who imports whom.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::scan::{self, File};

/// A folder of modules, by its path below `crates`.
pub type Folder = String;

/// Arrows between the modules of one folder: from, to, and the files and names that make it so.
pub type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// One source file, and the module that it is.
pub struct Source {
    /// Below `crates`.
    pub file: String,
    /// From the root of its program or library.
    pub module: Vec<String>,
    /// What it says.
    pub said: File,
}

/// All of a crate's programs and libraries: the folder of each, and its sources.
pub fn roots(folder: &Path, crates: &Path) -> Vec<(PathBuf, Vec<Source>)> {
    let mut found = Vec::new();
    let source = folder.join("src");
    if source.is_dir() {
        let mut own = Vec::new();
        collect(&source, &source, crates, &mut own, &mut found);
        found.insert(0, (source, own));
    }
    found
}

fn collect(
    folder: &Path,
    root: &Path,
    crates: &Path,
    own: &mut Vec<Source>,
    others: &mut Vec<(PathBuf, Vec<Source>)>,
) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            if path.join("main.rs").is_file() {
                // A program of its own.
                let mut inner = Vec::new();
                collect(&path, &path, crates, &mut inner, others);
                others.push((path, inner));
            } else {
                collect(&path, root, crates, own, others);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let inner = path.strip_prefix(root).unwrap();
            let mut module: Vec<String> = inner
                .components()
                .map(|part| part.as_os_str().to_string_lossy().into_owned())
                .collect();
            module.pop();
            if !matches!(name.as_str(), "lib" | "main" | "mod") {
                module.push(name);
            }
            let said = scan::file(&fs::read_to_string(&path).unwrap(), &module);
            let file = path.strip_prefix(crates).unwrap().display().to_string();
            own.push(Source { file, module, said });
        }
    }
}

/// The arrows of every folder with modules.
pub fn arrows(root: &Path, sources: &[Source], crates: &Path) -> BTreeMap<Folder, Arrows> {
    let modules: BTreeSet<&[String]> = sources
        .iter()
        .flat_map(|source| (1..=source.module.len()).map(|length| &source.module[..length]))
        .collect();
    let given_out: BTreeMap<(&[String], &str), &str> = sources
        .iter()
        .flat_map(|source| {
            let pairs = source.said.given_out.iter();
            pairs.map(|(name, submodule)| ((&source.module[..], name.as_str()), submodule.as_str()))
        })
        .collect();
    let mut found: BTreeMap<Folder, Arrows> = BTreeMap::new();
    for source in sources {
        for path in &source.said.paths {
            let module = &source.module;
            let common = module
                .iter()
                .zip(path)
                .take_while(|(own, named)| own == named)
                .count();
            let (Some(from), Some(named)) = (module.get(common), path.get(common)) else {
                continue;
            };
            let level = &module[..common];
            let mut inner = level.to_vec();
            inner.push(named.clone());
            // A module beside it, or what the one around both gives out of one.
            let to = if modules.contains(&inner[..]) {
                named.as_str()
            } else if let Some(submodule) = given_out.get(&(level, named.as_str())) {
                submodule
            } else {
                continue;
            };
            if to == from {
                continue;
            }
            let folder = level
                .iter()
                .fold(root.to_owned(), |folder, name| folder.join(name));
            let folder = folder.strip_prefix(crates).unwrap().display().to_string();
            let reason = format!("{}: {}", source.file, path.join("::"));
            let arrows = found.entry(folder).or_default();
            arrows
                .entry(from.clone())
                .or_default()
                .entry(to.to_owned())
                .or_default()
                .insert(reason);
        }
    }
    found
}

/// The circles among the modules of a folder: sets of two or more, each of which reaches all others.
pub fn circles(arrows: &Arrows) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|from| {
            let mut seen = BTreeSet::new();
            let mut ahead = vec![from.as_str()];
            while let Some(module) = ahead.pop() {
                for to in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
                    if seen.insert(to.as_str()) {
                        ahead.push(to);
                    }
                }
            }
            (from.as_str(), seen)
        })
        .collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (module, seen) in &reached {
        if !seen.contains(module) || circles.iter().any(|circle| circle.contains(module)) {
            continue;
        }
        let back = seen.iter().filter(|other| {
            reached
                .get(*other)
                .is_some_and(|seen| seen.contains(module))
        });
        circles.push(back.copied().collect());
    }
    circles
}
