//! Reads the file, and reads it again when it has changed.
use super::{Encryption, Error, Rules, config};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

/// How often the file is looked at: upstream's pace.
const EVERY: Duration = Duration::from_secs(60);

pub async fn load(file: &Path, reload: bool) -> Result<Rules, Error> {
    let bytes = read(file)?;
    let configuration = config::parse(file, &bytes, reload)?;
    let mut rules = config::build(&configuration, &bytes).await?;
    rules.checked |= reload;
    Ok(rules)
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    match std::fs::read(file) {
        Ok(bytes) if bytes.is_empty() => Err(Error::Empty(file.to_owned())),
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(Error::Read { file: file.to_owned(), source }),
    }
}

pub fn follow(encryption: Weak<Encryption>, file: PathBuf) {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(EVERY).await;
            let Some(encryption) = encryption.upgrade() else { return };
            match encryption.reload(&file).await {
                Ok(true) => tracing::info!(?file, "the encryption configuration was reloaded"),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, ?file, "error processing encryption config file");
                }
            }
        }
    });
}

impl Encryption {
    /// Takes the file's configuration in place of the one in use, if it has changed and works:
    /// what is in use remains until something better is there. Says whether it did.
    pub(super) async fn reload(&self, file: &Path) -> Result<bool, Error> {
        if Sha256::digest(read(file)?).as_slice() == self.rules().hash {
            return Ok(false);
        }
        let rules = load(file, true).await?;
        for plugin in &rules.plugins {
            let unwell = |cause| {
                Error::Invalid(format!("health check for new transformers failed: {cause}"))
            };
            plugin.check().await.map_err(unwell)?;
        }
        self.replace(rules);
        Ok(true)
    }
}
