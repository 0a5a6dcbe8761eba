//! Shell: a temporary nats-server with the durability of the system.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use async_nats::Client;

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// nats-server that is killed when this is dropped.
pub struct NatsServer {
    child: Child,
    pub url: String,
}

impl NatsServer {
    /// Starts it with its store below `folder` on a free port.
    pub async fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let config = folder.join("nats.conf");
        let store = folder.join("jetstream");
        // As in the system: every acknowledged message is on disk.
        let text = format!(
            "host: 127.0.0.1\nport: {port}\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            store.display()
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{} cannot be started", program.display()))?;
        let server = Self { child, url: format!("nats://127.0.0.1:{port}") };
        let until = Instant::now() + START_TIMEOUT;
        while server.connect().await.is_err() {
            if Instant::now() > until {
                bail!("the broker does not answer at {}", server.url);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    pub async fn connect(&self) -> anyhow::Result<Client> {
        Ok(async_nats::connect(&self.url).await?)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
