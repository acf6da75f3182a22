//! The schema that a device reads its file by: that of the gateway, or one that is compared with it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use common::schema::ColumnScale;

use super::{RunArgs, device_name, resolve};
use crate::{
    data::schema::{Schema, fleet_moments},
    host::{
        Identity,
        args::{DataArgsError, read_schema},
        schema::{SchemaLink, ToldSchema},
    },
};

/// Gets and compares the schema that `--schema` names; none without this option.
pub(super) fn schema(args: &RunArgs) -> Result<Option<Schema>> {
    let Some(path) = &args.data.schema else { return Ok(None) };
    args.data.expect_files()?;
    let local = if args.data.asks_gateway() { None } else { Some(read_schema(path)?) };
    // A file that does not fit is reported even if no gateway answers.
    if let Some(local) = local.as_ref().filter(|local| local.fleet_columns().next().is_none()) {
        args.data.shard_by(Some(local))?;
    }
    let (identity, device) = (Identity::load(&args.identity)?, device_name(args)?);
    let gateways = resolve(&args.server)?;
    let link = SchemaLink {
        gateways: &gateways,
        identity: &identity,
        device: &device,
        silence: Duration::from_secs(args.silence),
        give_up_after: args.give_up_after.map(Duration::from_secs),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(link.schema())?;
    let ToldSchema { schema, scaled } = match (local, told) {
        (None, None) => {
            bail!("the gateway has no schema; add [data] to its fairtier.toml, or use --schema FILE")
        }
        (None, Some(told)) => told,
        (Some(local), None) => {
            // Without a schema the gateway collects no scales.
            if let Some(column) = local.fleet_columns().next() {
                return Err(DataArgsError::FleetScale(column.to_owned()).into());
            }
            return Ok(Some(local));
        }
        (Some(local), Some(told)) if local.digest()? == told.schema.digest()? => told,
        (Some(local), Some(told)) => bail!(
            "{} has digest {}, the gateway's schema {}; use --schema gateway, or correct one of them",
            path.display(),
            local.digest()?,
            told.schema.digest()?
        ),
    };
    match scaled {
        Some(scaled) => Ok(Some(scaled)),
        None if schema.fleet_columns().next().is_none() => Ok(Some(schema)),
        None => agree(args, &link, &schema, &runtime).map(Some),
    }
}

/// Tells the gateway the moments of columns, and waits for the scale of the fleet.
fn agree(
    args: &RunArgs,
    link: &SchemaLink<'_>,
    schema: &Schema,
    runtime: &tokio::runtime::Runtime,
) -> Result<Schema> {
    if args.privacy.max_epsilon.is_some() {
        bail!(
            "the scale of the fleet needs mean and deviation of this device's columns without noise, which --max-epsilon forbids; \
             give `mean` and `deviation` in [data]"
        );
    }
    let path =
        args.data.path().context("a scale of the fleet needs a file of samples; name it with --data")?;
    let moments = fleet_moments(path, schema)?;
    let told = moments.into_iter().map(|(mean, deviation)| ColumnScale { mean, deviation }).collect();
    Ok(runtime.block_on(link.agree(schema, told))?)
}
