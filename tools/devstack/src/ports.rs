//! Shell: TCP ports of this machine: whether they are free, and what holds those that are not.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Tables of the kernel with all sockets (<https://man7.org/linux/man-pages/man5/proc_net.5.html>).
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// Ports that the kernel gives to outgoing connections.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Holder of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    Process {
        pid: u32,
        name: String,
    },
    /// Connection that has ended. The kernel keeps it for a minute (TIME-WAIT), and no process has it any more.
    EndedConnection,
    /// Process of another user, or a system without `/proc`.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "{name} (pid {pid}) holds it"),
            Self::EndedConnection => f.write_str(
                "a connection that has ended holds it, for a minute (TIME-WAIT): the kernel gives this port to \
                 outgoing connections",
            ),
            Self::Unknown => f.write_str("the process that holds it is not visible to this user"),
        }
    }
}

/// Binds a port as a server does, with `SO_REUSEADDR`, which ended connections of servers do not prevent.
pub fn check_free(port: u16) -> io::Result<()> {
    TcpListener::bind(("127.0.0.1", port)).map(drop)
}

/// Finds what holds a port that is not free.
pub fn holder_of(port: u16) -> Holder {
    let tables = TABLES.into_iter().filter_map(|table| fs::read_to_string(table).ok()).collect::<String>();
    let inodes = inodes_at(port, &tables);
    match inodes.iter().filter(|inode| **inode != 0).find_map(|inode| process_with(*inode)) {
        Some(process) => process,
        None if !inodes.is_empty() && inodes.iter().all(|inode| *inode == 0) => Holder::EndedConnection,
        None => Holder::Unknown,
    }
}

/// Ports that the kernel gives to outgoing connections; `None` on a system that does not tell.
pub fn ephemeral() -> Option<RangeInclusive<u16>> {
    let text = fs::read_to_string(EPHEMERAL).ok()?;
    let mut ends = text.split_whitespace().map(str::parse);
    Some(ends.next()?.ok()?..=ends.next()?.ok()?)
}

/// Inodes of the sockets with this local port. A socket without a process has inode 0.
fn inodes_at(port: u16, tables: &str) -> Vec<u64> {
    let inode = |line: &str| {
        let mut fields = line.split_whitespace();
        let (_, local) = fields.nth(1)?.rsplit_once(':')?;
        let inode = fields.nth(7)?.parse().ok()?;
        (u16::from_str_radix(local, 16).ok()? == port).then_some(inode)
    };
    tables.lines().filter_map(inode).collect()
}

/// Process that has a socket open.
fn process_with(inode: u64) -> Option<Holder> {
    let socket = PathBuf::from(format!("socket:[{inode}]"));
    fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let mut files = fs::read_dir(entry.path().join("fd")).ok()?.filter_map(Result::ok);
        files.find(|file| fs::read_link(file.path()).is_ok_and(|target| target == socket))?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_owned();
        Some(Holder::Process { pid, name })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn listening_process_holds_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(check_free(port).expect_err("it is taken").kind(), io::ErrorKind::AddrInUse);
        let Holder::Process { pid, .. } = holder_of(port) else { panic!("{}", holder_of(port)) };
        assert_eq!(pid, std::process::id());
        drop(listener);
        check_free(port).expect("it is free");
    }

    /// The kernel had given the port to an outgoing connection of some program.
    #[test]
    fn ended_connection_holds_its_port_without_a_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let port = client.local_addr().expect("an address").port();
        let (server, _) = listener.accept().expect("a connection");
        // Who closes first keeps the connection.
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        drop(server);
        assert_eq!(client.read(&mut [0]).expect("the other side has closed"), 0);
        drop(client);
        check_free(port).expect_err("the kernel keeps it");
        assert_eq!(holder_of(port), Holder::EndedConnection);
    }

    #[test]
    fn sockets_of_both_tables_are_found_by_port() {
        let tables = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 24680 1 0 100 0 0 10 0\n   \
             1: 0100007F:1F91 0100007F:1F90 06 00000000:00000000 03:00001000 00000000     0        0 0 3 0\n   \
             2: 00000000000000000000000000000000:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13579 1 0\n";
        assert_eq!(inodes_at(8080, tables), [24_680]);
        assert_eq!(inodes_at(8081, tables), [0]);
        assert_eq!(inodes_at(8082, tables), [13_579]);
        assert!(inodes_at(8083, tables).is_empty());
    }
}
