//! The threads of requests, and how a command waits for them.

use std::pin::pin;
use std::process;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{self, Runtime};

use crate::output::complain;

/// The threads of requests.
pub(super) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    built.unwrap_or_else(|e| {
        complain("error", &format!("starting threads for requests: {e}"));
        process::exit(2)
    })
});

/// Waits for `work`, which is often ready at once.
pub(super) fn wait<F: Future>(work: F) -> F::Output {
    let mut work = pin!(work);
    let _runtime = RUNTIME.enter();
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => RUNTIME.block_on(work),
    }
}
