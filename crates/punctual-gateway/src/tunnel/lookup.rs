//! Where names lead.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    sync::Arc,
};

use tokio::{sync::Semaphore, task::spawn_blocking};

/// Names that are asked after at once for one far gateway. The system has a thread for each until it has an answer, though nobody waits for that any more; so one
/// that begins flows and ends them at once would else have all threads there are, where no name server answers.
const AT_ONCE: usize = 8;

/// Asks the system where names lead, for one far gateway.
#[derive(Debug, Clone)]
pub(super) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Lookups {
    /// The addresses of `host:port`.
    pub(super) async fn find(&self, to: &str) -> io::Result<Vec<SocketAddr>> {
        self.find_by(to, |to| Ok(to.to_socket_addrs()?.collect())).await
    }

    async fn find_by(
        &self,
        to: &str,
        ask: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = to.parse() {
            return Ok(vec![address]);
        }
        let to = to.to_owned();
        let permit = self.0.clone().acquire_owned().await.map_err(io::Error::other)?;
        let asked = spawn_blocking(move || {
            let found = ask(&to);
            drop(permit);
            found
        });
        asked.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Condvar, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use super::*;

    #[tokio::test]
    async fn an_address_is_not_asked_after() {
        let found = Lookups::default().find_by("[::1]:80", |_| unreachable!("nobody is asked")).await.unwrap();
        assert_eq!(found, ["[::1]:80".parse().unwrap()]);
    }

    #[tokio::test]
    async fn who_asks_and_goes_away_again_and_again_has_few_threads() {
        let (asked, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new((Mutex::new(false), Condvar::new())));
        let ask = || {
            let (asked, answered) = (asked.clone(), answered.clone());
            move |_: &str| {
                asked.fetch_add(1, Ordering::Relaxed);
                let (done, changed) = &*answered;
                drop(changed.wait_while(done.lock().unwrap(), |done| !*done));
                Ok(Vec::new())
            }
        };
        let (hostile, other) = (Lookups::default(), Lookups::default());
        for _ in 0..200 {
            let _ = tokio::time::timeout(Duration::from_millis(1), hostile.find_by("dark:1", ask())).await;
        }
        assert!((1..=AT_ONCE).contains(&asked.load(Ordering::Relaxed)), "{asked:?}");
        let of_another = other.find_by("here:1", |_| Ok(vec![([127, 0, 0, 1], 1).into()]));
        assert_eq!(of_another.await.unwrap().len(), 1);
        *answered.0.lock().unwrap() = true;
        answered.1.notify_all();
    }
}
