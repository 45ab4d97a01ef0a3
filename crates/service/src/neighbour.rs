//! A tenant, as the CoreEngines of tenants that trust it see it: the listeners to which programs of these may have links. Each tenant has a
//! CoreEngine on a thread of its own, and this is all that two of them share; nobody waits for anybody.
//!
//! ```text
//!  CoreEngine of the server --show--> Neighbour --listeners--> CoreEngine of the client: entries of its directory
//!                          <--news---           <--lead------  a link that it has made and offered
//! ```

use netchannel_abi::address::Address;
use netchannel_abi::message::MESSAGE_BYTES;
use netchannel_abi::tenant::TenantAddresses;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The thread of a CoreEngine, from any other one.
pub trait Onlooker: Debug + Send + Sync {
    /// Something has changed: it looks soon.
    fn look(&self);
}

/// The accept channel of a listener.
#[derive(Debug)]
pub struct Offers {
    /// Where links are offered.
    pub offers: OwnedFd,
    /// The end of its programs, which tells how many they have not taken.
    pub accepts: OwnedFd,
}

impl Offers {
    /// Whether so many offers have not been taken.
    #[must_use]
    pub fn has(&self, most: u64) -> bool {
        let unread = rustix::io::ioctl_fionread(&self.accepts).unwrap_or(0);
        unread >= most * MESSAGE_BYTES as u64
    }
}

/// A listener that one program holds.
#[derive(Clone, Debug)]
pub struct OpenListener {
    /// Its address.
    pub address: Address,
    /// An IPv6 listener that takes no IPv4 connections.
    pub v6_only: bool,
    /// How often a silent client is asked before it may be accepted.
    pub defers: u32,
    /// The user of its program: only programs of that user may have links to it.
    pub user: u32,
    /// Its accept channel.
    pub channel: Arc<Offers>,
}

impl PartialEq for OpenListener {
    fn eq(&self, other: &Self) -> bool {
        let words = |one: &Self| (one.address, one.v6_only, one.defers, one.user);
        words(self) == words(other) && Arc::ptr_eq(&self.channel, &other.channel)
    }
}

/// A link that a program of another tenant has to a listener of this one.
#[derive(Debug)]
pub struct NewLink {
    /// Its number.
    pub number: u64,
    /// The user of that program.
    pub user: u32,
    /// The addresses of that tenant.
    pub from: TenantAddresses,
    /// The listener.
    pub listener: u32,
    /// Its memory.
    pub memory: OwnedFd,
}

/// News for the CoreEngine of the tenant.
#[derive(Debug)]
pub enum News {
    /// A link was made.
    Made(NewLink),
    /// The link of this number is known no more where it was made.
    Gone(u64),
}

/// A tenant that others trust.
#[derive(Debug)]
pub struct Neighbour {
    own: Weak<dyn Onlooker>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    listeners: BTreeMap<u32, OpenListener>,
    onlookers: Vec<Weak<dyn Onlooker>>,
    news: Vec<News>,
}

impl Neighbour {
    /// The tenant whose CoreEngine is on the thread of `own`. It shows nothing yet.
    #[must_use]
    pub fn new(own: Weak<dyn Onlooker>) -> Self {
        Self {
            own,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells these of its listeners from now on, and nobody else.
    pub fn tell(&self, onlookers: Vec<Weak<dyn Onlooker>>) {
        self.state().onlookers = onlookers;
    }

    /// These are its listeners now.
    pub fn show(&self, listeners: BTreeMap<u32, OpenListener>) {
        let mut state = self.state();
        if state.listeners != listeners {
            state.listeners = listeners;
            let onlookers = state.onlookers.clone();
            drop(state);
            onlookers
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|one| one.look());
        }
    }

    /// Its listeners.
    #[must_use]
    pub fn listeners(&self) -> BTreeMap<u32, OpenListener> {
        self.state().listeners.clone()
    }

    /// One of its listeners.
    #[must_use]
    pub fn listener(&self, number: u32) -> Option<OpenListener> {
        self.state().listeners.get(&number).cloned()
    }

    /// A link is about to be offered to one of its listeners. The tenant knows it as long as the lease lives.
    #[must_use]
    pub fn lead(self: &Arc<Self>, link: NewLink) -> Lease {
        let number = link.number;
        self.tell_own(News::Made(link));
        Lease {
            to: Arc::clone(self),
            number,
        }
    }

    fn tell_own(&self, news: News) {
        self.state().news.push(news);
        self.own.upgrade().iter().for_each(|own| own.look());
    }

    /// What has happened to links since the last call.
    #[must_use]
    pub fn news(&self) -> Vec<News> {
        std::mem::take(&mut self.state().news)
    }
}

/// Another tenant, and the addresses that its programs have.
#[derive(Clone, Debug)]
pub struct Trusted {
    /// What it shows.
    pub shows: Arc<Neighbour>,
    /// Its addresses, ports zero.
    pub addresses: Vec<Address>,
}

/// A link that leads to a listener of another tenant.
#[derive(Debug)]
pub struct Lease {
    to: Arc<Neighbour>,
    number: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.to.tell_own(News::Gone(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    struct Counted(AtomicUsize);

    impl Onlooker for Counted {
        fn look(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted() -> (Arc<Counted>, Weak<dyn Onlooker>) {
        let one = Arc::new(Counted::default());
        let dynamic: Arc<dyn Onlooker> = Arc::clone(&one) as _;
        (one, Arc::downgrade(&dynamic))
    }

    fn listener(port: u16) -> OpenListener {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (offers, accepts) = pair.unwrap();
        OpenListener {
            address: Address::v4([0; 4], port),
            v6_only: false,
            defers: 0,
            user: 1000,
            channel: Arc::new(Offers { offers, accepts }),
        }
    }

    #[test]
    fn onlookers_hear_of_listeners_and_the_tenant_of_links() {
        let ((own, of_own), (other, of_other)) = (counted(), counted());
        let neighbour = Arc::new(Neighbour::new(of_own));
        let told = |who: &Counted| who.0.load(Ordering::Relaxed);
        neighbour.tell(vec![of_other]);
        let shown = BTreeMap::from([(7, listener(80))]);
        neighbour.show(shown.clone());
        neighbour.show(shown.clone());
        assert_eq!((told(&own), told(&other)), (0, 1), "once for each change");
        assert_eq!(neighbour.listener(7), Some(shown[&7].clone()));
        assert_eq!(neighbour.listener(8), None);
        assert!(!shown[&7].channel.has(1) && shown[&7].channel.has(0));
        let memory = rustix::fs::memfd_create(c"test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let lease = neighbour.lead(NewLink {
            number: 5,
            user: 1000,
            from: TenantAddresses::default(),
            listener: 7,
            memory,
        });
        assert_eq!(told(&own), 1);
        drop(lease);
        let news = neighbour.news();
        assert!(
            matches!(&news[..], [News::Made(made), News::Gone(5)] if made.number == 5),
            "{news:?}"
        );
        assert!(neighbour.news().is_empty());
        drop(other);
        neighbour.show(BTreeMap::new());
        assert!(neighbour.listeners().is_empty());
    }
}
