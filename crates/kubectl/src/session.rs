//! What a command has besides its arguments: where its words go, and the cluster, once it asks for it.
use crate::cluster::Cluster;
use crate::failure::Outcome;
use crate::flags::Arguments;
use client::https::Policy;
use std::io::Write;

pub struct Session {
    pub out: Box<dyn Write + Send>,
    pub err: Box<dyn Write + Send>,
    /// Which credential programs may run.
    pub policy: Policy,
    cluster: Option<Cluster>,
}

impl Session {
    /// Standard output and error.
    pub fn terminal() -> Session {
        Session {
            out: Box::new(std::io::stdout()),
            err: Box::new(std::io::stderr()),
            policy: Policy::default(),
            cluster: None,
        }
    }

    /// The cluster that the arguments mean, connected to when it is first asked for anything.
    pub fn cluster(&mut self, arguments: &Arguments) -> Outcome<Cluster> {
        if let Some(cluster) = &self.cluster {
            return Ok(match arguments.some("namespace") {
                Some(namespace) => cluster.in_namespace(namespace),
                None => cluster.clone(),
            });
        }
        let cluster = Cluster::connect(arguments, self.policy.clone())?;
        self.cluster = Some(cluster.clone());
        Ok(cluster)
    }

    pub fn warnings(&self) -> usize {
        self.cluster.as_ref().map_or(0, Cluster::warnings)
    }

    pub fn flush(&mut self) -> Outcome {
        self.out.flush()?;
        Ok(self.err.flush()?)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::commands::COMMANDS;
    use crate::kuberc::Preferred;
    use crate::mapper::tests::discovery;
    use client::Context;
    use client::testing::World;
    use parking_lot::Mutex;
    use std::sync::Arc;

    /// Where a test reads what was written.
    #[derive(Clone, Default)]
    pub struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A world in memory that can be discovered.
    pub fn world() -> World {
        let world = World::new(&Context::new());
        let (core, named) = discovery();
        world.page("/api", core);
        world.page("/apis", named);
        world
    }

    /// Runs a command line against a world: what it wrote, and then what it failed with.
    pub async fn told(world: &World, line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        told_words(world, &Preferred::nothing(&words)).await
    }

    /// The same for words that hold spaces, or nothing, or that preferences made.
    pub async fn told_words(world: &World, preferred: &Preferred) -> String {
        let _ = COMMANDS;
        let heard = Heard::default();
        let mut session = Session {
            out: Box::new(heard.clone()),
            err: Box::new(heard.clone()),
            policy: Policy::default(),
            cluster: Some(Cluster::of(world.source(), "default")),
        };
        let outcome = crate::run(&mut session, preferred).await;
        let mut text = String::from_utf8(heard.0.lock().clone()).expect("output is text");
        if let Err(failure) = outcome {
            text.push_str(&failure.message());
            text.push('\n');
        }
        text
    }
}
