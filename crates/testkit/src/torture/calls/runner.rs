//! The process that runs cases one after the other, over kernel TCP or under `netchannel run`, and the judge's handle
//! of it.
//!
//! ```text
//!  judge --- manner, program ---> runner (`torture calls-run`) --- fork ---> actors
//!        <--- a line per step ---           |
//!                                               the same board: where there are two hosts, `torture calls-far` makes those of the other one
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::conduct::{Conductor, board_path};
use super::program::Program;
use super::settings::RunSettings;

/// The command-line word of the runner.
pub const COMMAND: &str = "calls-run";

/// Runs the programs that arrive on standard input until it ends.
pub fn run() -> std::io::Result<()> {
    let conductor = Conductor::new()?;
    let mut input = std::io::stdin().lock();
    loop {
        let mut head = String::new();
        if input.read_line(&mut head)? == 0 {
            return Ok(());
        }
        let mut numbers = head
            .split_whitespace()
            .map(|word| word.parse::<u64>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let (size, patience, haste) = (next(), next(), next());
        let (settling, fresh) = (next(), next());
        let mut text = vec![0; usize::try_from(size).unwrap_or(0)];
        input.read_exact(&mut text)?;
        let settings = RunSettings {
            patience: Duration::from_millis(patience),
            haste: Duration::from_millis(haste),
            settling: Duration::from_micros(settling),
            fresh: fresh == 1,
        };
        let notes = match Program::read(&String::from_utf8_lossy(&text)) {
            Ok(program) => conductor.run(&program, settings),
            Err(line) => vec![format!("not understood: {line}")],
        };
        let mut answer = format!("{}\n", notes.len());
        for note in notes {
            answer.push_str(&note.replace('\n', " "));
            answer.push('\n');
        }
        let mut output = std::io::stdout().lock();
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
}

/// A running runner.
pub struct Runner {
    child: Child,
    /// The runner of the other host, where there is one.
    far: Option<Child>,
    input: ChildStdin,
    answers: Receiver<Vec<String>>,
    what: &'static str,
}

impl Runner {
    /// Starts a runner with a command that leads to this program, and with another command the runner of the other
    /// host.
    pub fn start(
        mut command: Command,
        far: Option<Command>,
        what: &'static str,
    ) -> std::io::Result<Self> {
        command
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let missing = || std::io::Error::other("no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(answer) = read_answer(&mut output) {
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        let far = far.map(|mut command| {
            command.arg(super::far::COMMAND).arg(board_path(child.id()));
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
        });
        Ok(Self {
            child,
            far: far.transpose()?,
            input,
            answers,
            what,
        })
    }

    /// Runs one case. Returns an error if the runner itself is lost.
    pub fn run(&mut self, program: &Program, settings: RunSettings) -> Result<Vec<String>, String> {
        let text = program.to_string();
        let fresh = u8::from(settings.fresh);
        let head = format!(
            "{} {} {} {} {fresh}\n",
            text.len(),
            settings.patience.as_millis(),
            settings.haste.as_millis(),
            settings.settling.as_micros()
        );
        let sent = self
            .input
            .write_all(head.as_bytes())
            .and_then(|()| self.input.write_all(text.as_bytes()));
        sent.and_then(|()| self.input.flush())
            .map_err(|error| format!("{}: {error}", self.what))?;
        let limit = Duration::from_secs(60);
        self.answers
            .recv_timeout(limit)
            .map_err(|_| format!("{}: the runner does not answer", self.what))
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        for child in [&mut self.child].into_iter().chain(&mut self.far) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A killed runner had no time to remove its board.
        let _ = std::fs::remove_file(board_path(self.child.id()));
    }
}

fn read_answer(output: &mut BufReader<ChildStdout>) -> Option<Vec<String>> {
    let mut line = String::new();
    output.read_line(&mut line).ok().filter(|size| *size > 0)?;
    let count: usize = line.trim().parse().ok()?;
    (0..count)
        .map(|_| {
            let mut line = String::new();
            output.read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        })
        .collect()
}
