//! Programs that torture starts: itself, in other parts, whose output is read by lines.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The path of this program.
pub fn this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"))
}

/// A program whose output is read by lines. Dropping the value kills the program.
pub struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program starts");
        let output = child.stdout.take().expect("its output is piped");
        Self {
            child,
            output: BufReader::new(output),
        }
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line, empty at the end of the output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let _ = self.output.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// The rest of the output. Waits for the program's end.
    pub fn rest(&mut self) -> String {
        let mut text = String::new();
        let _ = self.output.read_to_string(&mut text);
        text
    }

    /// Whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for a successful end. Returns the rest of the output.
    pub fn end(&mut self, latest: Instant) -> Result<String, String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(self.rest()),
                Ok(Some(status)) => return Err(format!("{status}: {}", self.rest())),
                Ok(None) if Instant::now() >= latest => return Err("it does not end".to_owned()),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
