//! Name service for programs that ask for it over UDP, of which a tenant has none: such a socket becomes one end of a pair, and who
//! asks there is answered by the C library's `res_query`, whose place the library takes: it asks over TCP whom the operator names.
//!
//! ```text
//!  program --question--> end ===== ours --> a thread: res_query --> TCP, by the library
//! ```

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::questions::{self, FAILED, NO_NAME, Question};
use crate::sockets::NO_SOCKET;
use crate::system::{self, Epoll, HUP, Sys};

/// The port of name service.
pub const PORT: u16 = 53;
/// Sockets that ask at a time, and questions that wait for an answer.
const MOST: usize = 1024;
const MOST_QUESTIONS: usize = 64;
/// The longest question.
pub const LONGEST: usize = 4096;
/// Tokens of what is no socket begin to be of sockets that ask for names here.
const FIRST: u32 = 16;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
}

type ResQuery = unsafe extern "C" fn(*const c_char, c_int, c_int, *mut u8, c_int) -> c_int;

/// A socket that asks for names.
#[derive(Debug)]
pub struct Asker {
    /// The other end of the program's.
    ours: Arc<OwnedFd>,
    inode: u64,
    /// Its family.
    pub domain: c_int,
    /// Its own address.
    pub name: Vec<u8>,
    /// The server that it asks.
    pub server: Vec<u8>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Names {
    askers: HashMap<u32, Asker>,
    by_inode: HashMap<u64, u32>,
    next: u32,
    questions: Arc<AtomicUsize>,
}

impl Names {
    /// The socket whose end on the program's side has this inode.
    pub fn find(&mut self, inode: u64) -> Option<&mut Asker> {
        let number = self.by_inode.get(&inode)?;
        self.askers.get_mut(number)
    }

    /// Another one. Returns the program's end.
    ///
    /// # Errors
    /// The errno.
    pub fn add(
        &mut self,
        epoll: &Epoll,
        domain: c_int,
        name: Vec<u8>,
        never: bool,
    ) -> Sys<OwnedFd> {
        if self.askers.len() >= MOST {
            return Err(libc::ENOBUFS);
        }
        let flags = if never { libc::SOCK_NONBLOCK } else { 0 };
        let (end, ours) = system::packet_pair(flags)?;
        let inode = system::inode(end.as_fd())?;
        while self.next < FIRST || self.askers.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1).max(FIRST);
        }
        let number = self.next;
        epoll.add_edges(ours.as_fd(), u64::from(NO_SOCKET) << 32 | u64::from(number))?;
        let asker = Asker {
            ours: Arc::new(ours),
            inode,
            domain,
            name,
            server: Vec::new(),
        };
        self.askers.insert(number, asker);
        self.by_inode.insert(inode, number);
        Ok(end)
    }

    /// Something happened at the socket of a token.
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub fn on_event(&mut self, token: u64, events: u32) {
        let number = token as u32;
        let Some(asker) = self.askers.get(&number) else {
            return;
        };
        let mut room = [0; LONGEST];
        while let Ok(got @ 1..) = system::receive(asker.ours.as_fd(), &mut room) {
            asker.ask(&room[..got], &self.questions);
        }
        if events & HUP != 0 {
            self.by_inode.remove(&asker.inode);
            self.askers.remove(&number);
        }
    }

    /// A question that did not come over the pair.
    pub fn ask(&mut self, inode: u64, packet: &[u8]) {
        let questions = Arc::clone(&self.questions);
        if let Some(asker) = self.find(inode) {
            asker.ask(packet, &questions);
        }
    }
}

impl Asker {
    /// Answers a question, later.
    fn ask(&self, packet: &[u8], questions: &Arc<AtomicUsize>) {
        let Some(question) = Question::read(packet) else {
            if let Some(answer) = questions::malformed(packet) {
                let _ = system::send(self.ours.as_fd(), &answer);
            }
            return;
        };
        // Relaxed: a count, and nothing else.
        if questions.fetch_add(1, Ordering::Relaxed) >= MOST_QUESTIONS {
            questions.fetch_sub(1, Ordering::Relaxed);
            let _ = system::send(self.ours.as_fd(), &question.with_error(FAILED));
            return;
        }
        let (ours, running) = (Arc::clone(&self.ours), Arc::clone(questions));
        let thread = thread::Builder::new().stack_size(512 << 10);
        let begun = thread.spawn(move || {
            answer(ours.as_fd(), &question);
            running.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            questions.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(to: BorrowedFd<'_>, question: &Question) {
    let answer = match look_up(question) {
        Ok(answer) => question.with_answer(answer),
        Err(code) => question.with_error(code),
    };
    let _ = system::send(to, &answer);
}

/// Asks the C library, which may take seconds.
fn look_up(question: &Question) -> Result<Vec<u8>, u8> {
    /// Values of `h_errno`.
    const NOT_FOUND: c_int = 1;
    const NO_DATA: c_int = 4;
    // SAFETY: a C string; the look-up has no other condition. By name, so that it is the library's, wherever the C library has its own.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"res_query".as_ptr()) };
    let name = CString::new(question.name.as_str()).map_err(|_| FAILED)?;
    if found.is_null() {
        return Err(FAILED);
    }
    // SAFETY: the symbol of this name has this type.
    let query = unsafe { std::mem::transmute::<*mut libc::c_void, ResQuery>(found) };
    let mut room = vec![0_u8; 1 << 16];
    let most = c_int::try_from(room.len()).unwrap_or(0);
    let (class, kind) = (question.class.into(), question.kind.into());
    // SAFETY: a C string, and at most the room's length is written.
    let got = unsafe { query(name.as_ptr(), class, kind, room.as_mut_ptr(), most) };
    match usize::try_from(got) {
        Ok(got) => {
            room.truncate(got);
            Ok(room)
        }
        // SAFETY: a thread's own number.
        Err(_) => match unsafe { *__h_errno_location() } {
            NOT_FOUND => Err(NO_NAME),
            NO_DATA => Err(0),
            _ => Err(FAILED),
        },
    }
}
