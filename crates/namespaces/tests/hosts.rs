//! Two hosts really are two, talk to each other, and leave nothing behind.
//!
//! It has no test harness: who is not root must be alone in the process when it gains its rights, and one test ends with its maker
//! killed. What is not allowed here is skipped, and said so.

use netchannel_namespaces::{Cores, Host, Hosts, Offload, gain_rights};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const MAKER: &str = "maker-to-be-killed";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(MAKER) => return maker(),
        Some("--list") => {
            println!("hosts: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Err(error) = gain_rights() {
        println!("skipped: hosts: {error}");
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 11] = [
        ("hosts_reach_each_other", hosts_reach_each_other),
        ("loopback_is_each_hosts_own", loopback_is_each_hosts_own),
        ("programs_start_in_a_host", programs_start_in_a_host),
        (
            "each_host_has_processors_of_its_own",
            each_host_has_processors_of_its_own,
        ),
        (
            "congestion_control_is_that_of_both_ends",
            congestion_control_is_that_of_both_ends,
        ),
        (
            "a_pulled_cable_stops_and_resumes",
            a_pulled_cable_stops_and_resumes,
        ),
        (
            "acknowledgements_are_not_put_off",
            acknowledgements_are_not_put_off,
        ),
        ("offloads_can_be_set", offloads_can_be_set),
        ("packets_are_lost", packets_are_lost),
        ("packets_are_delayed", packets_are_delayed),
        (
            "a_killed_maker_leaves_nothing",
            a_killed_maker_leaves_nothing,
        ),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn connect(hosts: &Hosts, to: IpAddr) -> (TcpStream, TcpStream) {
    let listener = hosts
        .b
        .within(|| TcpListener::bind(SocketAddr::new(to, 0)))
        .unwrap()
        .unwrap();
    let address = listener.local_addr().unwrap();
    let limit = Duration::from_secs(5);
    let client = hosts
        .a
        .within(|| TcpStream::connect_timeout(&address, limit))
        .unwrap()
        .unwrap();
    client.set_nodelay(true).unwrap();
    let (server, from) = listener.accept().unwrap();
    assert!(from.ip() == hosts.a.address() || from.is_ipv6(), "{from}");
    for stream in [&client, &server] {
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
    }
    (client, server)
}

fn ask(client: &mut TcpStream, server: &mut TcpStream) {
    let mut text = [0; 5];
    client.write_all(b"hello").unwrap();
    server.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello");
}

fn hosts_reach_each_other() {
    let hosts = Hosts::make().unwrap();
    for address in [
        hosts.b.address(),
        IpAddr::V4(hosts.b.v4(7)),
        IpAddr::V6(hosts.b.v6(0)),
    ] {
        if address.is_ipv6() && !Path::new("/proc/net/if_inet6").exists() {
            println!("left out: IPv6");
            continue;
        }
        let (mut client, mut server) = connect(&hosts, address);
        ask(&mut client, &mut server);
    }
}

fn loopback_is_each_hosts_own() {
    let hosts = Hosts::make().unwrap();
    let listen = || TcpListener::bind("127.0.0.1:4000");
    let in_a = hosts.a.within(listen).unwrap().unwrap();
    let in_b = hosts.b.within(listen).unwrap().unwrap();
    drop(in_a);
    let refused = hosts.a.within(|| TcpStream::connect("127.0.0.1:4000"));
    assert!(refused.unwrap().is_err());
    assert!(
        hosts
            .b
            .within(|| TcpStream::connect("127.0.0.1:4000"))
            .unwrap()
            .is_ok()
    );
    drop(in_b);
}

fn programs_start_in_a_host() {
    let hosts = Hosts::make().unwrap();
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    for host in [&hosts.a, &hosts.b] {
        let output = host.command("readlink").arg("/proc/self/ns/net").output();
        let name = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(name.trim(), format!("net:[{}]", host.inode().unwrap()));
        assert_ne!(name.trim(), own.to_str().unwrap());
        let through = fs::metadata(host.path());
        assert!(through.is_ok());
    }
}

fn each_host_has_processors_of_its_own() {
    let listed = |host: &Host| {
        let mut command = host.command("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let shared = Hosts::make_with(Cores::Shared).unwrap();
    assert_eq!(listed(&shared.a), listed(&shared.b));
    let hosts = Hosts::make().unwrap();
    if hosts.a.processors().is_empty() {
        println!("left out: there is one processor only");
        return;
    }
    assert_ne!(listed(&hosts.a), listed(&hosts.b));
    let number = hosts.a.processors()[0].to_string();
    assert!(listed(&hosts.a).contains(&number));
    if let Ok(mask) = hosts.a.setting("core/rps_default_mask") {
        let bits = u64::from_str_radix(&mask.replace(',', ""), 16).unwrap();
        let expected = hosts.a.processors().iter().map(|number| 1 << number);
        assert_eq!(bits, expected.sum::<u64>());
    }
}

fn congestion_control_is_that_of_both_ends() {
    let hosts = Hosts::make().unwrap();
    let own = hosts.a.setting("ipv4/tcp_congestion_control").unwrap();
    let known = hosts.a.setting("ipv4/tcp_available_congestion_control");
    let known = known.unwrap();
    let Some(other) = known.split_whitespace().find(|name| *name != own) else {
        println!("left out: there is one congestion control only");
        return;
    };
    hosts.congestion_control(other).unwrap();
    let (client, server) = connect(&hosts, hosts.b.address());
    assert_eq!(congestion_control_of(&client), other);
    assert_eq!(congestion_control_of(&server), other);
    assert!(hosts.congestion_control("carrier-pigeons").is_err());
}

fn packets_are_lost() {
    let hosts = Hosts::make().unwrap();
    let received = || {
        let from = hosts
            .b
            .within(|| UdpSocket::bind("10.77.2.1:0"))
            .unwrap()
            .unwrap();
        let to = from.local_addr().unwrap();
        let socket = hosts.a.within(|| UdpSocket::bind("10.77.1.1:0"));
        let socket = socket.unwrap().unwrap();
        for _ in 0..100 {
            socket.send_to(b"x", to).unwrap();
        }
        from.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        (0..100)
            .take_while(|_| from.recv(&mut [0; 1]).is_ok())
            .count()
    };
    hosts.packets(1500, 1).unwrap();
    // The hosts know each other's address from now on: a lost question would be asked again after a second only.
    assert_eq!(received(), 100);
    let loss = match hosts.lose(0.5) {
        Ok(loss) => loss,
        Err(error) => {
            println!("left out: no XDP program ({error})");
            return;
        }
    };
    let some = received();
    assert!((20..=80).contains(&some), "{some} of 100");
    drop(loss);
    let all = hosts.lose(1.0).unwrap();
    assert_eq!(received(), 0);
    drop(all);
    assert_eq!(received(), 100);
}

/// The addresses of the second host, of each family that there is.
fn addresses_of_b(hosts: &Hosts) -> Vec<IpAddr> {
    let mut addresses = vec![hosts.b.address()];
    if Path::new("/proc/net/if_inet6").exists() {
        addresses.push(IpAddr::V6(hosts.b.v6(0)));
    }
    addresses
}

/// A connection to each of them.
fn connect_to_all(hosts: &Hosts, addresses: &[IpAddr]) -> Vec<(TcpStream, TcpStream)> {
    let each = addresses.iter().map(|address| connect(hosts, *address));
    each.collect()
}

fn packets_are_delayed() {
    let hosts = Hosts::make().unwrap();
    let addresses = addresses_of_b(&hosts);
    let mut pairs = connect_to_all(&hosts, &addresses);
    let quickest = |pairs: &mut Vec<(TcpStream, TcpStream)>| {
        let mut times = Vec::new();
        for (client, server) in pairs {
            for _ in 0..20 {
                let begun = Instant::now();
                ask(client, server);
                times.push(begun.elapsed());
            }
        }
        times.into_iter().min().unwrap()
    };
    let time = Duration::from_millis(20);
    assert!(quickest(&mut pairs) < time);
    let delay = match hosts.delay(time) {
        Ok(delay) => delay,
        Err(error) => {
            println!("left out: no queue for packets ({error})");
            return;
        }
    };
    let delayed = quickest(&mut pairs);
    assert!(delayed >= time && delayed < 2 * time, "{delayed:?}");
    // What is on its way is not lost, and segments stay whole.
    let (mut client, mut server) = connect(&hosts, addresses[0]);
    let writer = std::thread::spawn(move || client.write_all(&vec![7; 8 << 20]).unwrap());
    let mut bytes = vec![0; 8 << 20];
    server.read_exact(&mut bytes).unwrap();
    writer.join().unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
    drop(delay);
    assert!(quickest(&mut pairs) < time);
    // Made and ended again and again.
    drop(hosts.delay(time).unwrap());
    drop(hosts.delay(Duration::ZERO).unwrap());
}

fn congestion_control_of(stream: &TcpStream) -> String {
    let mut name = [0_u8; 16];
    let mut length = 16;
    // SAFETY: the option writes at most `length` bytes into the live `name`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0);
    let name = name.split(|byte| *byte == 0).next().unwrap();
    String::from_utf8(name.to_vec()).unwrap()
}

/// Two small pieces, an answer: Nagle's algorithm holds the second one back until the first is acknowledged, 40 ms later as a rule.
fn acknowledgements_are_not_put_off() {
    let hosts = Hosts::make().unwrap();
    hosts.acknowledge_at_once().unwrap();
    hosts.blackhole_other_addresses().unwrap();
    let of_b: [IpAddr; 2] = [hosts.b.address(), hosts.b.v6(0).into()];
    for address in of_b {
        let (mut client, mut server) = connect(&hosts, address);
        client.set_nodelay(false).unwrap();
        let mut quick = 0;
        for _ in 0..10 {
            let start = Instant::now();
            for byte in [1, 2] {
                client.write_all(&[byte]).unwrap();
            }
            let mut both = [0; 2];
            server.read_exact(&mut both).unwrap();
            server.write_all(&[3]).unwrap();
            client.read_exact(&mut both[..1]).unwrap();
            quick += u32::from(start.elapsed() < Duration::from_millis(30));
        }
        assert!(quick >= 8, "{address}: {quick} of 10 at once");
    }
}

fn a_pulled_cable_stops_and_resumes() {
    let hosts = Hosts::make().unwrap();
    let addresses = addresses_of_b(&hosts);
    let mut pairs = connect_to_all(&hosts, &addresses);
    hosts.cable(false).unwrap();
    for (client, server) in &mut pairs {
        client.write_all(b"hello").unwrap();
        server
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        assert!(server.read(&mut [0; 1]).is_err());
        server
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
    }
    hosts.cable(true).unwrap();
    for (client, server) in &mut pairs {
        let mut text = [0; 5];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"hello");
        ask(client, server);
    }
    for address in addresses {
        let (mut client, mut server) = connect(&hosts, address);
        ask(&mut client, &mut server);
    }
}

fn offloads_can_be_set() {
    let hosts = Hosts::make().unwrap();
    // How many packets a megabyte takes tells which it is.
    let packets = |offload| {
        hosts.offload(offload).unwrap();
        let (mut client, mut server) = connect(&hosts, hosts.b.address());
        let before = sent_packets(&hosts);
        let writer = std::thread::spawn(move || client.write_all(&vec![7; 1 << 20]).unwrap());
        server.read_exact(&mut vec![0; 1 << 20]).unwrap();
        writer.join().unwrap();
        sent_packets(&hosts) - before
    };
    let whole = packets(Offload::Segments);
    let single = packets(Offload::Packets);
    let again = packets(Offload::Segments);
    assert!(single > 700, "{single} packets");
    assert!(
        whole < single / 2 && again < single / 2,
        "{whole}, {single}, {again} packets"
    );
}

fn sent_packets(hosts: &Hosts) -> u64 {
    let table = hosts
        .a
        .within(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let table = table.unwrap().unwrap();
    let line = table
        .lines()
        .find(|line| line.trim().starts_with("veth0:"))
        .unwrap();
    line.split_whitespace().nth(10).unwrap().parse().unwrap()
}

/// Makes hosts, starts a program in each that begins a session of its own, says who they are, and waits to be killed.
fn maker() -> ExitCode {
    let hosts = Hosts::make().expect("two hosts");
    let mut children = Vec::new();
    for host in [&hosts.a, &hosts.b] {
        let child = host
            .command("setsid")
            .args(["--fork", "sleep", "1000"])
            .status();
        assert!(child.expect("setsid").success());
        children.push(host.inode().expect("an inode").to_string());
    }
    println!("{}", children.join(" "));
    std::io::stdout().flush().expect("stdout");
    std::thread::sleep(Duration::from_secs(1000));
    ExitCode::SUCCESS
}

fn inhabitants(home: &str) -> usize {
    let home = format!("net:[{home}]");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let homes = processes.filter_map(|process| fs::read_link(process.path().join("ns/net")).ok());
    homes
        .filter(|found| found.as_os_str() == home.as_str())
        .count()
}

fn a_killed_maker_leaves_nothing() {
    let mut maker = Command::new(std::env::current_exe().unwrap())
        .arg(MAKER)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(maker.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let homes: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(homes.len(), 2);
    let deadline = Instant::now() + Duration::from_secs(10);
    while homes.iter().any(|home| inhabitants(home) == 0) {
        assert!(Instant::now() < deadline, "the programs were not started");
    }
    maker.kill().unwrap();
    maker.wait().unwrap();
    while homes.iter().any(|home| inhabitants(home) > 0) {
        assert!(Instant::now() < deadline, "programs live on");
        std::thread::sleep(Duration::from_millis(5));
    }
}
