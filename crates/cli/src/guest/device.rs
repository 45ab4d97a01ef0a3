//! The devices of the machine: the memory that it shares with the host, and the doorbell.

use netchannel_shm::Region;
use netchannel_stack_guest::Bell;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// PCI devices, and what ivshmem calls itself.
const DEVICES: &str = "/sys/bus/pci/devices";
const VENDOR: &str = "0x1af4";
const DEVICE: &str = "0x1110";
/// Ports of virtio-serial, and the name of the doorbell.
const PORTS: &str = "/sys/class/virtio-ports";
const PORT: &str = "org.netchannel.0";

/// Finds the memory.
///
/// # Errors
/// Where there is none, or more than one.
pub fn find() -> Result<PathBuf, String> {
    find_in(Path::new(DEVICES))
}

fn find_in(devices: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(devices).into_iter().flatten().flatten();
    let is_ours = |device: &Path| {
        reads(&device.join("vendor"), VENDOR) && reads(&device.join("device"), DEVICE)
    };
    let mut found = entries.map(|entry| entry.path()).filter(|one| is_ours(one));
    match (found.next(), found.next()) {
        (Some(device), None) => Ok(device.join("resource2")),
        (Some(_), Some(_)) => Err(format!(
            "this machine has several ivshmem devices: choose one with --memory {DEVICES}/.../resource2"
        )),
        (None, _) => Err(
            "this machine has no ivshmem device: add `-object memory-backend-file,id=nc,share=on,...` and `-device ivshmem-plain,memdev=nc` to QEMU (docs/guest.md)"
                .to_owned(),
        ),
    }
}

fn reads(file: &Path, wanted: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.trim() == wanted)
}

/// Maps it.
///
/// # Errors
/// One sentence.
pub fn map(path: &Path) -> Result<Region, String> {
    let shown = path.display();
    let enable = path.with_file_name("enable");
    if path.ends_with("resource2") && !reads(&enable, "1") {
        std::fs::write(&enable, "1").map_err(|error| {
            format!("cannot enable the device of {shown} ({error}): are you root?")
        })?;
    }
    let fail = |error: std::io::Error| format!("cannot use {shown} as memory ({error})");
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(fail)?;
    let size = file.metadata().map_err(fail)?.len();
    let size = usize::try_from(size).map_err(|_| format!("{shown} is too large"))?;
    Region::map_unsealed(file.as_raw_fd(), size)
        .map_err(|error| format!("cannot map {shown} ({error})"))
}

/// The doorbell, where the machine has one.
pub fn bell() -> Option<Bell> {
    let entries = std::fs::read_dir(PORTS).into_iter().flatten().flatten();
    let mut ours = entries.filter(|entry| reads(&entry.path().join("name"), PORT));
    let path = Path::new("/dev").join(ours.next()?.file_name());
    match Bell::open(&path) {
        Ok(bell) => Some(bell),
        Err(errno) => {
            tracing::warn!("the doorbell {} can not be used ({errno})", path.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_device_is_found_and_several_are_not_guessed() {
        let place = tempfile::tempdir().unwrap();
        assert!(find_in(place.path()).unwrap_err().contains("no ivshmem"));
        let add = |name: &str, device: &str| {
            let folder = place.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("vendor"), "0x1af4\n").unwrap();
            std::fs::write(folder.join("device"), device).unwrap();
        };
        add("0000:00:01.0", "0x1003\n");
        add("0000:00:02.0", "0x1110\n");
        let found = find_in(place.path()).unwrap();
        assert!(found.ends_with("0000:00:02.0/resource2"));
        add("0000:00:03.0", "0x1110\n");
        assert!(find_in(place.path()).unwrap_err().contains("several"));
    }
}
