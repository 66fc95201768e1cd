//! How fast the framework's hot parts are, and what they cost: `cargo xtask bench framework`.
//!
//! No harness measures this for us: the loops are plain, and each prints one row of a table. It asserts what does not
//! depend on the machine (nobody starves, no request is sent) and prints what does.

#![allow(clippy::print_stdout)]

mod cache;
mod queue;
mod reconcile;
mod server;

/// As in the binary that the operators run in. The library itself leaves the choice to whoever builds on it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // What an allocator kept of one form of the pods would be there for the next: each has a process of its own.
    if let Some(form) = std::env::var(FORM).ok().and_then(|name| cache::Form::named(&name)) {
        runtime.block_on(cache::pods(form));
        return Ok(());
    }
    println!("| What | Result |\n|---|---|");
    for keys in [1_000, 10_000, 100_000, 1_000_000] {
        queue::million(keys);
    }
    for form in cache::Form::ALL {
        let child = std::process::Command::new(std::env::current_exe()?)
            .env(FORM, form.name())
            .status()?;
        assert!(child.success(), "pods {} were not measured: {child}", form.name());
    }
    runtime.block_on(reconcile::unchanged());
    Ok(())
}

/// Which form of the pods a process of this benchmark measures.
const FORM: &str = "STEAD_BENCH_FORM";
