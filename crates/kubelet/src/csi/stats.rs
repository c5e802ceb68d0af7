//! What a volume holds and has room for, as its driver tells (`pkg/volume/csi/csi_metrics.go`).
use super::proto::{NodeGetVolumeStatsRequest, VolumeUsage, volume_usage::Unit};
use super::{Csi, Type, shown};
use crate::volumes::usage::Usage;
use std::path::Path;

impl Csi {
    /// Nothing if the driver cannot tell.
    pub async fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &Path,
    ) -> Result<Option<Usage>, String> {
        let node = self.driver(driver)?;
        let can = node.can().await.map_err(|status| shown(&status))?;
        if !can.contains(&Type::GetVolumeStats) {
            return Ok(None);
        }
        let request = NodeGetVolumeStatsRequest {
            volume_id: handle.to_owned(),
            volume_path: path.display().to_string(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let told = node.node_get_volume_stats(request).await.map_err(|status| shown(&status))?;
        match told.usage.is_empty() {
            true => Err("failed to get usage from response. usage is nil".to_owned()),
            false => Ok(Some(summed(&told.usage))),
        }
    }
}

/// Bytes and inodes come as rows of their own.
fn summed(rows: &[VolumeUsage]) -> Usage {
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    let mut usage = Usage::default();
    for row in rows {
        let (available, total, used) = (number(row.available), number(row.total), number(row.used));
        match row.unit() {
            Unit::Bytes => {
                (usage.available, usage.capacity, usage.used) = (available, total, used);
            }
            Unit::Inodes => {
                (usage.inodes_free, usage.inodes, usage.inodes_used) = (available, total, used);
            }
            Unit::Unknown => {}
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_inodes_are_told_apart() {
        let row = |unit: Unit, available, total, used| VolumeUsage {
            available,
            total,
            used,
            unit: unit.into(),
        };
        let rows = [
            row(Unit::Bytes, 60, 100, 40),
            row(Unit::Inodes, 7, 10, 3),
            row(Unit::Unknown, 1, 1, 1),
        ];
        let expected = Usage {
            available: 60,
            capacity: 100,
            used: 40,
            inodes: 10,
            inodes_free: 7,
            inodes_used: 3,
        };
        assert_eq!(summed(&rows), expected);
        assert_eq!(summed(&[row(Unit::Bytes, -1, 5, 0)]).available, 0);
    }
}
