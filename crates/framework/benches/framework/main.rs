//! How fast the framework's hot parts are, and what they cost: `cargo xtask bench framework`.
//!
//! No harness measures this for us: the loops are plain, and each prints one row of a table. It asserts what does not
//! depend on the machine (nobody starves, no request is sent) and prints what does.

#![allow(clippy::print_stdout)]

mod cache;
mod queue;
mod reconcile;
mod server;

fn main() {
    println!("| What | Result |\n|---|---|");
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        queue::million(keys);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return println!("no runtime: {error}"),
    };
    runtime.block_on(async {
        cache::pods().await;
        reconcile::unchanged().await;
    });
}
