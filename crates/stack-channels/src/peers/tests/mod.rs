//! Sets of peers over loopback in one process.

mod announcements;
mod channels;
mod hostile;
mod reloading;
mod world;
