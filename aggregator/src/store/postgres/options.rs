//! What a gateway of a cluster is configured with.

use std::{env, time::Duration};

use tokio_postgres::Config;

use super::database::Access;
use crate::store::StoreError;

/// A database is waited for at least this long before a leader lets its devices go elsewhere.
const PATIENCE: Duration = Duration::from_secs(30);
/// Names the variable with the password, so that it need not be in `fairtier.toml`.
const PASSWORD: &str = "PGPASSWORD";

/// See the module.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The name of this gateway.
    pub node: String,
    /// `file:///PATH`.
    pub objects: String,
    /// A leader that gives no sign of life for this long is replaced.
    pub lease: Duration,
    /// Objects that are not needed any more are removed after this time.
    pub keep_dropped: Duration,
    /// The certificate of the fleet's authority, which all gateways share.
    pub authority: Vec<u8>,
    /// Where devices find this gateway; for operators.
    pub address: String,
    config: Config,
    allow_loss: bool,
}

impl PostgresOptions {
    /// Fails if `database` is not a connection string. `PGPASSWORD` is the password of one that has none.
    pub fn new(node: &str, database: &str, objects: &str, allow_loss: bool) -> Result<Self, StoreError> {
        let parsed: Result<Config, _> = database.parse();
        let mut config = parsed.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            StoreError::Cluster { what: format!("cluster.database: {error}{cause}") }
        })?;
        if config.get_password().is_none()
            && let Ok(password) = env::var(PASSWORD)
        {
            config.password(password);
        }
        config
            .application_name(format!("fairtier {node}"))
            .connect_timeout(Duration::from_secs(5))
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3);
        Ok(Self {
            node: node.to_owned(),
            objects: objects.to_owned(),
            lease: Duration::from_secs(10),
            keep_dropped: Duration::from_secs(24 * 3600),
            authority: vec![],
            address: String::new(),
            config,
            allow_loss,
        })
    }

    pub(super) fn access(&self) -> Access {
        Access { config: self.config.clone(), allow_loss: self.allow_loss }
    }

    /// How long a statement or an object is tried again.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE.max(self.lease * 3)
    }
}
