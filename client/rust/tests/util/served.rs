//! A service for tests, at an abstract name that no other has.

use std::sync::atomic::{AtomicU32, Ordering};

use handle_watcher_client::{Client, ClientConfig, ConnectConfig, Service, ServiceConfig, Watcher};

/// A service of a watcher of this process.
#[derive(Debug)]
pub(crate) struct Served {
    service: Service,
    path: String,
}

impl Served {
    pub(crate) fn by(watcher: &Watcher) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = format!("@handle-watcher-test-{}-{number}", std::process::id());
        let config = ServiceConfig { watches_per_session: 1 << 20, ..ServiceConfig::default() };
        Self { service: Service::bind(watcher, &path, config).expect("a service"), path }
    }

    pub(crate) fn connect(&self, config: ClientConfig) -> Client {
        Client::connect_with(&self.path, &ConnectConfig::default(), config).expect("a session")
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn stop(&self) {
        self.service.stop();
    }
}
