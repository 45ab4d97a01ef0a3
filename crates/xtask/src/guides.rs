//! `cargo xtask guides`: does what the guides say, from their own blocks, in a copy of the checkout: a transport and a policy of one's own, which
//! the configuration selects and `netchannel channels` shows.
//!
//! ```text
//!   docs/*.md ── blocks below a file's name ──> the file is written (rust), or changed (diff) in the copy
//!             ── cargo test ──> what is missing is said with the file to edit ──> the rest of the blocks ──> cargo test, two daemons
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Workspace;

/// A guide, and the crate whose tests check it.
const GUIDES: [(&str, &str); 2] = [
    ("docs/transports.md", "netchannel-driver"),
    ("docs/scheduling.md", "netchannel-scheduler"),
];

/// Files that a guide may change besides the one that it creates.
const MOST_TOUCHED: usize = 2;

/// How long two daemons may take to connect.
const MEETING: Duration = Duration::from_secs(30);

/// A block of a guide.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    file: String,
    is_change: bool,
    text: String,
}

/// The blocks that stand below a line which is nothing but the name of a file.
fn blocks(guide: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut file: Option<String> = None;
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let is_change = kind == "diff";
            if let Some(file) = file.clone().filter(|_| is_change || kind == "rust,ignore") {
                let text = text.join("\n") + "\n";
                found.push(Block {
                    file,
                    is_change,
                    text,
                });
            }
        } else if let Some(name) = line
            .strip_prefix('`')
            .and_then(|line| line.strip_suffix('`'))
        {
            file = (!name.contains(['`', ' '])).then(|| name.to_owned());
        } else if !line.is_empty() {
            file = None;
        }
    }
    found
}

/// A text with a change: the lines that the block removes must occur in it once, as whole lines.
fn changed(text: &str, block: &str) -> Result<String> {
    let side = |other: char| -> String {
        let lines = block.lines().filter(|line| !line.starts_with(other));
        lines
            .map(|line| line.get(1..).unwrap_or_default().to_owned() + "\n")
            .collect()
    };
    let (old, new) = (format!("\n{}", side('+')), format!("\n{}", side('-')));
    let text = format!("\n{text}");
    // Neighbours share a line break: such matches lie over each other.
    let places = text
        .match_indices('\n')
        .filter(|(at, _)| text[*at..].starts_with(&old));
    ensure!(
        places.count() == 1,
        "these lines do not stand there once:{old}"
    );
    Ok(text.replacen(&old, &new, 1).split_off(1))
}

/// Follows the guides; true when all came out as they say.
pub fn run(workspace: &Workspace) -> Result<bool> {
    let folder = workspace.target.join("guides");
    let tree = folder.join("tree");
    copy(&workspace.root, &tree)?;
    let cargo = |words: &[&str]| {
        let mut command = workspace.cargo();
        command
            .args(words)
            .current_dir(&tree)
            .env("CARGO_TARGET_DIR", folder.join("target"));
        command
    };
    let mut left = Vec::new();
    for (guide, package) in GUIDES {
        let blocks = blocks(&fs::read_to_string(workspace.root.join(guide))?);
        let made = blocks.iter().filter(|block| !block.is_change).count();
        let touched: BTreeSet<&str> = blocks
            .iter()
            .filter(|block| block.is_change)
            .map(|block| block.file.as_str())
            .collect();
        ensure!(made == 1, "{guide} makes {made} files");
        ensure!(touched.len() <= MOST_TOUCHED, "{guide} touches {touched:?}");
        let (pages, code): (Vec<_>, Vec<_>) = blocks
            .into_iter()
            .partition(|block| block.file.starts_with("docs/"));
        for block in &code {
            follow(&tree, block).with_context(|| format!("{guide}, {}", block.file))?;
        }
        // The missing parts are reported with the file to edit.
        let output = cargo(&["test", "--no-fail-fast", "--package", package]).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() || !said.contains(guide) {
            bail!("without its row in {guide}, the tests of {package} do not say so:\n{said}");
        }
        left.extend(pages);
    }
    for block in &left {
        follow(&tree, block).with_context(|| block.file.clone())?;
    }
    let packages = GUIDES.map(|(_, package)| ["--package", package]).concat();
    for words in [
        ["test"]
            .iter()
            .chain(&packages)
            .copied()
            .collect::<Vec<_>>(),
        vec!["build", "--package", "netchannel-cli"],
    ] {
        ensure!(
            cargo(&words).status()?.success(),
            "cargo {} in {}",
            words.join(" "),
            tree.display()
        );
    }
    let shown = wait_for_connection(&folder.join("target/debug/netchannel"))?;
    println!("two daemons met over the transport of the guide, with its policy:\n{shown}");
    Ok(true)
}

/// The files of a checkout that git knows or would add, as they are now; what did not change keeps its time, so that cargo builds little.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    ensure!(
        listed.status.success(),
        "{} is no checkout of git",
        root.display()
    );
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: BTreeSet<&str> = names
        .split('\0')
        .filter(|name| root.join(name).is_file() && !name.is_empty())
        .collect();
    for name in &names {
        let (from, to) = (root.join(name), tree.join(name));
        let text = fs::read(&from)?;
        if fs::read(&to).ok().as_ref() != Some(&text) {
            fs::create_dir_all(to.parent().context("a file without a folder")?)?;
            fs::write(&to, text)?;
        }
    }
    remove_others(tree, tree, &names)
}

fn remove_others(folder: &Path, tree: &Path, names: &BTreeSet<&str>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, tree, names)?;
        } else if !path
            .strip_prefix(tree)?
            .to_str()
            .is_some_and(|name| names.contains(name))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn follow(tree: &Path, block: &Block) -> Result<()> {
    let path = tree.join(&block.file);
    if !block.is_change {
        fs::create_dir_all(path.parent().context("a file without a folder")?)?;
        return Ok(fs::write(&path, &block.text)?);
    }
    let text = fs::read_to_string(&path)?;
    Ok(fs::write(&path, changed(&text, &block.text)?)?)
}

/// A daemon of a meeting; killed with the value.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two daemons of this host, each the other's peer, and what `channels` and `set scheduler` show.
fn wait_for_connection(program: &Path) -> Result<String> {
    let place = std::env::temp_dir().join(format!("netchannel-guides-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    let key = place.join("both.key");
    fs::write(&key, "0123456789abcdef".repeat(4))?;
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut daemons = Vec::new();
    let socket = |number: usize| place.join(format!("{number}.sock"));
    for (own, other) in [(1, 2), (2, 1)] {
        let file = place.join(format!("{own}.toml"));
        let text = format!(
            "[host]\nname = \"host-{own}\"\nlisten = \"127.0.9.{own}\"\n[[peers]]\nname = \"host-{other}\"\n\
             addresses = \"127.0.9.{other}\"\nkey-file = \"both.key\"\n[scheduler]\nchannel = \"least-delay rate=12500\"\n\
             [transport]\nname = \"unix\"\n"
        );
        fs::write(&file, text)?;
        let log = fs::File::create(place.join(format!("{own}.log")))?;
        let child = Command::new(program)
            .arg("daemon")
            .arg("--socket")
            .arg(socket(own))
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        daemons.push(Daemon(child));
    }
    let ask = |words: &[&str]| -> Result<String> {
        let output = Command::new(program)
            .args(words)
            .arg("--socket")
            .arg(socket(1))
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let start = Instant::now();
    let shown = loop {
        let channels = ask(&["channels", "--json"])?;
        if channels.contains("\"transport\": \"unix\"") && channels.contains("\"state\": \"up\"") {
            break ask(&["channels"])? + &ask(&["set", "scheduler"])?;
        }
        if start.elapsed() > MEETING {
            let logs = [1, 2].map(|own| {
                fs::read_to_string(place.join(format!("{own}.log"))).unwrap_or_default()
            });
            bail!(
                "no channel over unix comes up:\n{channels}\n{}",
                logs.concat()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    drop(daemons);
    fs::remove_dir_all(&place)?;
    ensure!(
        shown.contains("least-delay rate=12500"),
        "the policy is not shown:\n{shown}"
    );
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_belong_to_the_file_that_is_named_above() {
        let guide = "`a.rs`\n\n```rust,ignore\nx\n```\n\n`b.rs`\n\n```diff\n c\n+d\n```\n\n```diff\n-e\n```\n\nWords.\n\n```diff\n+f\n```\n";
        let block = |file: &str, is_change, text: &str| Block {
            file: file.to_owned(),
            is_change,
            text: text.to_owned(),
        };
        let wanted = [
            block("a.rs", false, "x\n"),
            block("b.rs", true, " c\n+d\n"),
            block("b.rs", true, "-e\n"),
        ];
        assert_eq!(blocks(guide), wanted);
    }

    #[test]
    fn a_change_is_made_where_its_lines_stand() {
        assert_eq!(changed("a\nb\n", " a\n+x\n").unwrap(), "a\nx\nb\n");
        assert_eq!(changed("a\nb\n", "-a\n b\n").unwrap(), "b\n");
        assert!(changed("a\na\n", "-a\n").is_err());
        assert!(changed("b\n", "-a\n").is_err());
    }

    #[test]
    fn both_guides_can_be_followed() {
        let workspace = Workspace::find().unwrap();
        for (guide, _) in GUIDES {
            for block in blocks(&fs::read_to_string(workspace.root.join(guide)).unwrap()) {
                if block.is_change {
                    let text = fs::read_to_string(workspace.root.join(&block.file)).unwrap();
                    changed(&text, &block.text).unwrap();
                }
            }
        }
    }
}
