//! Segments and models in an object store: written once, read back whole, never changed.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, local::LocalFileSystem, path,
};
use tracing::debug;

use super::database::Executor;
use crate::store::StoreError;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// The object store of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    executor: Arc<Executor>,
    store: Arc<dyn ObjectStore>,
    url: String,
    patience: Duration,
}

impl Objects {
    /// `url` is `file:///PATH`, a directory that all gateways share.
    pub fn open(executor: Arc<Executor>, url: &str, patience: Duration) -> Result<Self, StoreError> {
        let failed =
            |what: String| StoreError::Cluster { what: format!("cluster.objects = \"{url}\": {what}") };
        let Some(dir) = url.strip_prefix("file://").filter(|dir| dir.starts_with('/')) else {
            return Err(failed("must be file:///PATH".to_owned()));
        };
        common::files::make_private_dir(Path::new(dir)).map_err(|error| failed(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(dir).map_err(|error| failed(error.to_string()))?;
        // Without it, an object is not durable when it is acknowledged.
        let store = Arc::new(store.with_fsync(true));
        Ok(Self { executor, store, url: url.to_owned(), patience })
    }

    /// Durable when it returns. The name is new; if it exists, an earlier attempt has written it.
    pub fn put(&self, name: &str, bytes: &Bytes) -> Result<(), StoreError> {
        self.repeat(name, |store, path| {
            let payload = PutPayload::from_bytes(bytes.clone());
            async move {
                match store.put_opts(&path, payload, PutOptions::from(PutMode::Create)).await {
                    Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        })
    }

    pub fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        self.repeat(name, |store, path| async move { store.get(&path).await?.bytes().await })
    }

    /// Removes an object; one that is gone is fine.
    pub fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.repeat(name, |store, path| async move {
            match store.delete(&path).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    /// For messages.
    pub fn describe(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    fn repeat<T: Send + 'static, R>(
        &self,
        name: &str,
        work: impl Fn(Arc<dyn ObjectStore>, path::Path) -> R,
    ) -> Result<T, StoreError>
    where
        R: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let start = Instant::now();
        loop {
            let error = match self.executor.wait(work(self.store.clone(), path::Path::from(name)))? {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let lasting = matches!(error, Error::NotFound { .. });
            let what = format!("{}: {error}", self.describe(name));
            if lasting || start.elapsed() >= self.patience {
                return Err(StoreError::Cluster { what });
            }
            debug!("an object is tried again: {what}");
            std::thread::sleep(PAUSE);
        }
    }
}
