//! The terminal: the other screen while `top` runs, and everything as it was afterwards, however it ends. Plain escape
//! sequences that every terminal of the last decades understands; on one that says it understands none, page after page.

use super::page::Line;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Instant;

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What the terminal was before; the same for the whole process.
static BEFORE: OnceLock<Termios> = OnceLock::new();

/// Whether output goes to somebody who looks.
pub fn is_terminal() -> bool {
    isatty(stdout())
}

/// Why waiting is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It is time for the next look.
    Due,
    /// The page must be drawn again.
    Redraw,
    /// Somebody wants it to end.
    End,
}

/// The terminal while `top` has it.
pub struct Screen {
    page: Vec<Line>,
    escapes: bool,
    keys: bool,
    end: UnixStream,
    resize: UnixStream,
    pause: UnixStream,
}

/// A descriptor that gets a byte with each of these signals.
fn signal_pipe(signals: &[i32]) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When signals cannot be heard.
    pub fn enter() -> io::Result<Self> {
        let term = std::env::var("TERM").unwrap_or_default();
        let screen = Self {
            page: Vec::new(),
            escapes: !term.is_empty() && term != "dumb",
            keys: isatty(stdin()),
            end: signal_pipe(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT])?,
            resize: signal_pipe(&[SIGWINCH])?,
            pause: signal_pipe(&[SIGTSTP])?,
        };
        if screen.keys
            && let Ok(before) = tcgetattr(stdin())
        {
            BEFORE.get_or_init(|| before);
        }
        let escapes = screen.escapes;
        // The program aborts when it panics: nothing is dropped then.
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(escapes);
            usual(panic);
        }));
        screen.take();
        Ok(screen)
    }

    fn take(&self) {
        if let Some(before) = BEFORE.get() {
            let mut raw = before.clone();
            // Keys one by one, and unseen; those that make signals go on doing so.
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            let _ = tcsetattr(stdin(), OptionalActions::Now, &raw);
        }
        if self.escapes {
            put(ENTER);
        }
    }

    /// Shows a page.
    pub fn show(&mut self, page: Vec<Line>) {
        self.page = page;
        self.draw();
    }

    /// Draws the page, as far as it fits.
    pub fn draw(&self) {
        let (width, height) = size();
        put(&drawn(&self.page, width, height, self.escapes));
    }

    /// Waits until something is to be done, at the latest until `due`.
    pub fn wait(&mut self, due: Instant) -> Wake {
        loop {
            let patience = due.saturating_duration_since(Instant::now());
            if patience.is_zero() {
                return Wake::Due;
            }
            let patience = Timespec::try_from(patience).ok();
            let input = stdin();
            let mut watched = [
                PollFd::new(&self.end, PollFlags::IN),
                PollFd::new(&self.resize, PollFlags::IN),
                PollFd::new(&self.pause, PollFlags::IN),
                PollFd::from_borrowed_fd(input, PollFlags::IN),
            ];
            let count = if self.keys { 4 } else { 3 };
            match poll(&mut watched[..count], patience.as_ref()) {
                Ok(0) => return Wake::Due,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Wake::End,
            }
            let [end, resize, pause, keys] = watched.map(|one| !one.revents().is_empty());
            if end {
                return Wake::End;
            }
            if resize {
                drain(&mut self.resize);
                return Wake::Redraw;
            }
            if pause {
                drain(&mut self.pause);
                give_back(self.escapes);
                // Stops here, and goes on here.
                let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
                self.take();
                return Wake::Redraw;
            }
            if keys && let Some(wake) = self.on_keys() {
                return wake;
            }
        }
    }

    fn on_keys(&mut self) -> Option<Wake> {
        let mut keys = [0; 64];
        match rustix::io::read(stdin(), &mut keys) {
            // The terminal is gone.
            Ok(0) | Err(Errno::IO) => Some(Wake::End),
            Ok(count) => match keys.get(..count)? {
                // Ctrl-C comes as a byte where the terminal makes no signal of it.
                pressed if pressed.iter().any(|key| b"qQ\x03".contains(key)) => Some(Wake::End),
                pressed if pressed.contains(&b' ') => Some(Wake::Due),
                _ => None,
            },
            Err(_) => None,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(self.escapes);
    }
}

/// Everything as it was.
fn give_back(escapes: bool) {
    if escapes {
        put(LEAVE);
    }
    if let Some(before) = BEFORE.get() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, before);
    }
}

fn drain(stream: &mut UnixStream) {
    while let Ok(1..) = stream.read(&mut [0; 64]) {}
}

fn put(text: &str) {
    let mut output = io::stdout().lock();
    // A terminal that is gone ends it by its signal.
    let _ = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
}

/// Columns and lines.
fn size() -> (usize, usize) {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (80, 24),
    }
}

/// The bytes that put a page on the screen, over what was there.
fn drawn(page: &[Line], width: usize, height: usize, escapes: bool) -> String {
    if !escapes {
        let lines = page.iter().map(|line| format!("{}\r\n", line.text));
        return lines.collect::<String>() + "\r\n";
    }
    let mut text = "\x1b[H".to_owned();
    for (index, line) in page.iter().take(height).enumerate() {
        if index > 0 {
            text.push_str("\r\n");
        }
        let shown: String = line
            .text
            .chars()
            .map(|letter| if letter.is_control() { '?' } else { letter })
            .take(width)
            .collect();
        if line.is_head {
            text.push_str(&format!("\x1b[7m{shown:<width$}\x1b[0m"));
        } else {
            text.push_str(&shown);
        }
        text.push_str("\x1b[K");
    }
    text + "\x1b[J"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, is_head: bool) -> Line {
        Line {
            text: text.to_owned(),
            is_head,
        }
    }

    #[test]
    fn a_page_is_cut_to_the_screen() {
        let page = [line("abcdef", false), line("HEAD", true), line("x", false)];
        let text = drawn(&page, 5, 2, true);
        assert_eq!(text, "\x1b[Habcde\x1b[K\r\n\x1b[7mHEAD \x1b[0m\x1b[K\x1b[J");
        assert_eq!(drawn(&page, 5, 2, false), "abcdef\r\nHEAD\r\nx\r\n\r\n");
    }

    #[test]
    fn what_programs_are_called_does_nothing_to_the_terminal() {
        let text = drawn(&[line("a\x1b[2J\u{9b}b", false)], 80, 24, true);
        assert!(text.starts_with("\x1b[Ha?[2J?b\x1b[K"), "{text:?}");
    }
}
