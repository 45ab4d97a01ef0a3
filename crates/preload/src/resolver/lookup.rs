//! Looking a name up: in which domains, at which servers, and what their answers come to.

use core::net::IpAddr;

use super::message::{Question, Reply, codes, kinds};
use super::name::Name;
use super::settings::Settings;

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such name.
    NotFound,
    /// The name has no such records.
    NoData,
    /// Servers answered that they can not say.
    TryAgain,
    /// No server answered.
    Unanswered,
    /// No server understands the question.
    NoRecovery,
}

/// The answers to questions for several kinds of records, as they were asked for. At least one has data.
#[derive(Clone, Debug)]
pub struct Found(pub Vec<Reply>);

impl Found {
    /// The answers that have data.
    fn with_data(&self) -> impl Iterator<Item = &Reply> {
        self.0.iter().filter(|reply| reply.has_data())
    }

    /// All addresses.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let all = self.with_data().flat_map(|reply| &reply.addresses);
        all.copied().collect()
    }

    /// The answer whose names count.
    pub fn first(&self) -> Option<&Reply> {
        self.with_data().next()
    }
}

/// Asks one server questions, and returns the answers that came, in their order.
pub type Ask<'a> = dyn FnMut(IpAddr, &[Question]) -> Vec<Option<Reply>> + 'a;

/// Who is asked, and how.
pub struct Resolver<'a> {
    pub settings: &'a Settings,
    pub servers: &'a [IpAddr],
    pub ask: &'a mut Ask<'a>,
    /// Programs read the answers themselves.
    pub is_raw: bool,
    /// Numbers that nobody guesses.
    pub random: fn() -> u16,
}

impl Resolver<'_> {
    /// Asks about one name.
    ///
    /// # Errors
    /// Why nothing was found.
    pub fn query(&mut self, name: &Name, kinds: &[u16]) -> Result<Found, Failure> {
        let is_asked = |kind: &&u16| **kind != kinds::AAAA || !self.settings.no_aaaa;
        let kinds: Vec<u16> = kinds.iter().filter(is_asked).copied().collect();
        if kinds.is_empty() {
            return Err(Failure::NoData);
        }
        let mut settled: Vec<Option<Reply>> = vec![None; kinds.len()];
        let mut unanswered = Failure::Unanswered;
        for _ in 0..self.settings.attempts {
            for server in self.servers {
                let both = kinds.iter().zip(&settled);
                let open = both.filter(|(_, reply)| reply.is_none());
                let questions: Vec<Question> = open
                    .map(|(kind, _)| Question {
                        id: (self.random)(),
                        name: name.clone(),
                        kind: *kind,
                        is_raw: self.is_raw,
                    })
                    .collect();
                if questions.is_empty() {
                    return conclude(settled, unanswered);
                }
                let mut replies = (self.ask)(*server, &questions).into_iter();
                for place in settled.iter_mut().filter(|reply| reply.is_none()) {
                    let reply = replies.next().flatten();
                    if reply.is_some() {
                        unanswered = Failure::TryAgain;
                    }
                    *place = reply.filter(Reply::is_settled);
                }
            }
        }
        conclude(settled, unanswered)
    }

    /// Looks for what a program wrote: as it is, and in the domains of the host.
    ///
    /// # Errors
    /// That which the C library tells of several.
    pub fn search(&mut self, text: &[u8], kinds: &[u16]) -> Result<Found, Failure> {
        let dots = text.iter().filter(|byte| **byte == b'.').count();
        let is_whole = text.ends_with(b".");
        let mut as_it_is = None;
        if is_whole || dots >= self.settings.dots as usize {
            match self.look_for(text, kinds) {
                Err(failure) => as_it_is = Some(failure),
                found => return found,
            }
        }
        let (mut no_data, mut again) = (false, false);
        let domains: &[Vec<u8>] = if is_whole { &[] } else { &self.settings.search };
        for domain in domains {
            // The root is a domain, too.
            let full = match domain.as_slice() {
                b"." => text.to_vec(),
                domain => [text, domain].join(&b'.'),
            };
            match self.look_for(&full, kinds) {
                Err(Failure::NotFound) => {}
                Err(Failure::NoData) => no_data = true,
                Err(Failure::TryAgain) => again = true,
                Err(Failure::Unanswered | Failure::NoRecovery) => break,
                found => return found,
            }
        }
        if let Some(failure) = as_it_is {
            return Err(failure);
        }
        match self.look_for(text, kinds) {
            Err(_) if no_data => Err(Failure::NoData),
            Err(_) if again => Err(Failure::TryAgain),
            result => result,
        }
    }

    fn look_for(&mut self, text: &[u8], kinds: &[u16]) -> Result<Found, Failure> {
        let name = Name::parse(text).ok_or(Failure::NotFound)?;
        self.query(&name, kinds)
    }
}

fn conclude(settled: Vec<Option<Reply>>, unanswered: Failure) -> Result<Found, Failure> {
    let failure = |reply: &Option<Reply>| match reply {
        None => Some(unanswered),
        Some(reply) if reply.has_data() => None,
        Some(reply) => Some(match reply.code {
            codes::DONE => Failure::NoData,
            codes::NO_NAME => Failure::NotFound,
            _ => Failure::NoRecovery,
        }),
    };
    let failures: Option<Vec<Failure>> = settled.iter().map(failure).collect();
    match failures {
        None => Ok(Found(settled.into_iter().flatten().collect())),
        // The first that says more than that there are no such records.
        Some(failures) => {
            let mut said = failures.into_iter();
            let said = said.find(|failure| *failure != Failure::NoData);
            Err(said.unwrap_or(Failure::NoData))
        }
    }
}
