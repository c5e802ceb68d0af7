//! The runtime without the rest of the binary, for this crate's tests and benchmarks: `shim SPEC` is
//! what it runs itself again as, `serve FOLDER` the daemon, `reset FOLDER` the cleaner; `pause` and
//! `demo` are what the built-in images run. What is shipped is `skiff`, which does the same and more.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runtime::image::RegistriesConfig;
use runtime::network::Loopback;
use runtime::{Options, Service, Snapshotter, reset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["shim", spec] => Ok(runtime::shim::main(Path::new(spec))?),
        ["pause"] => runtime::builtin::pause(),
        ["demo"] => demo(),
        ["serve", folder] => serve(Path::new(folder)),
        ["reset", folder] => {
            let folder = Path::new(folder);
            for thing in
                reset::plan(&folder.join("root"), &folder.join("state"), &cgroup_root(), &[])
            {
                thing.remove()?;
            }
            Ok(())
        }
        _ => {
            Err("usage: runtime-alone shim SPEC | serve FOLDER | reset FOLDER | pause | demo"
                .into())
        }
    }
}

fn cgroup_root() -> String {
    std::env::var("CGROUP_ROOT").unwrap_or_else(|_| "/skiff".to_owned())
}

fn demo() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = tokio::net::TcpListener::bind("[::]:8080").await?;
        Ok(runtime::builtin::demo(listener, std::future::pending()).await?)
    })
}

fn serve(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Options {
        root: folder.join("root"),
        state: folder.join("state"),
        registries: RegistriesConfig::read(&folder.join("registries.yaml"))?,
        network: Arc::new(Loopback),
        snapshotter: match std::env::var("SNAPSHOTTER").as_deref() {
            Ok("native") => Snapshotter::Native,
            _ => Snapshotter::Auto,
        },
        cgroup_root: cgroup_root(),
        handlers: std::env::var("HANDLERS")
            .iter()
            .flat_map(|text| text.split(','))
            .filter_map(|handler| handler.split_once('='))
            .map(|(name, path)| (name.to_owned(), PathBuf::from(path)))
            .collect(),
        executable: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
    };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let service = Service::open(options).await?;
        service.serve_streams().await?;
        let socket = folder.join("cri.sock");
        runtime::cri::serve(Arc::new(service), &socket, std::future::pending()).await?;
        Ok(())
    })
}
