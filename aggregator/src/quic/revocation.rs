//! Connections and fleet entries of devices that are no longer members.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{Code, DeviceId};
use tracing::warn;

use super::{
    Context, Peer, close,
    identify::{IdentifyError, certificate, look_up},
};
use crate::admission::Refusal;

/// Time between two comparisons of open connections with the enrolled devices.
pub(super) const REVOCATION_INTERVAL: Duration = Duration::from_secs(2);

/// Closes connections of revoked devices, and of devices whose certificate has expired.
pub(super) async fn disconnect_revoked(context: Arc<Context>) {
    let mut restored = BTreeSet::new();
    loop {
        let (context, said) = (context.clone(), restored.clone());
        let check = move || {
            context.devices.all().into_iter().for_each(|(device, open)| context.check(&device, &open));
            context.remove_revoked();
            context.warn_of_restored(said)
        };
        // If it panics, it is tried again.
        restored = tokio::task::spawn_blocking(check).await.unwrap_or(restored);
        tokio::time::sleep(REVOCATION_INTERVAL).await;
    }
}

impl Context {
    /// Closes a connection whose device is no longer a member. It stays open while the files cannot be read.
    fn check(&self, device: &DeviceId, peer: &Peer) {
        // Sessions of boards check their members themselves.
        let Peer::Direct(open) = peer else { return };
        let code = match look_up(certificate(open), &self.authority) {
            Ok(_) => return,
            Err(IdentifyError::Unclear(error)) => {
                return self.admission.count_refusal(Refusal::Unclear, &error);
            }
            // It may have a new certificate already.
            Err(IdentifyError::Expired) => Code::NotReady,
            Err(IdentifyError::Unknown) => Code::UnknownDevice,
        };
        warn!(%device, "dropped: {code}");
        close(open, code);
    }

    /// Warns once of each revoked device whose file a backup has restored. Returns the devices that were reported.
    fn warn_of_restored(&self, said: BTreeSet<DeviceId>) -> BTreeSet<DeviceId> {
        let restored = match self.authority.restored() {
            Ok(restored) => restored.into_iter().collect::<BTreeSet<_>>(),
            Err(error) => {
                self.admission.count_refusal(Refusal::Unclear, &error);
                return said;
            }
        };
        for device in restored.difference(&said) {
            warn!(
                %device,
                "revoked, but its file is in identity/ again, as after restoring a backup: it stays refused; \
                 `fairtier gateway enroll --replace` makes it a member again, `fairtier gateway revoke` removes the file"
            );
        }
        restored
    }

    /// Removes revoked devices from the fleet, connected or not. They stay while the files cannot be read.
    pub(crate) fn remove_revoked(&self) {
        for device in self.driver.members() {
            match self.authority.is_member(&device) {
                Ok(true) => {}
                Ok(false) => {
                    warn!(%device, "revoked: the run no longer waits for the device or counts it");
                    self.driver.with(|coordinator, now| coordinator.handle_revoked(&device, now));
                }
                Err(error) => return self.admission.count_refusal(Refusal::Unclear, &error),
            }
        }
    }
}
