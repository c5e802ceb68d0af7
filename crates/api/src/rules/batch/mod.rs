//! Jobs and what starts them on a schedule.
pub mod cron;
mod cron_job;
mod indexes;
mod job;
mod job_policy;
mod job_selector;
mod job_status;
