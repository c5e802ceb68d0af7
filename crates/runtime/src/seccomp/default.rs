//! `RuntimeDefault`: what any program may ask of the kernel, and what a capability adds.
//!
//! The list is by subject. What is left out administers the machine, loads code into the kernel,
//! reaches into other processes' kernels, or is so old that nobody calls it.
use super::{Action, Comparison, Profile, Rule};

/// Calls for everybody.
const ANYBODY: &[&str] = &[
    // Files: open, read, write, close.
    "open openat openat2 creat close close_range read pread64 readv preadv preadv2 write pwrite64",
    "writev pwritev pwritev2 lseek _llseek sendfile sendfile64 splice tee vmsplice copy_file_range",
    "readahead fadvise64 fadvise64_64 arm_fadvise64_64 fallocate truncate truncate64 ftruncate",
    "ftruncate64 fsync fdatasync sync syncfs sync_file_range sync_file_range2 flock dup dup2 dup3",
    "fcntl fcntl64 ioctl pipe pipe2 memfd_create memfd_secret cachestat",
    // Names and attributes.
    "access faccessat faccessat2 stat stat64 fstat fstat64 lstat lstat64 fstatat64 newfstatat statx",
    "statfs statfs64 fstatfs fstatfs64 getcwd chdir fchdir mkdir mkdirat rmdir link linkat symlink",
    "symlinkat readlink readlinkat unlink unlinkat rename renameat renameat2 mknod mknodat chmod",
    "fchmod fchmodat fchmodat2 chown chown32 fchown fchown32 lchown lchown32 fchownat umask utime",
    "utimes utimensat utimensat_time64 futimesat getdents getdents64 getxattr lgetxattr fgetxattr",
    "getxattrat setxattr lsetxattr fsetxattr setxattrat listxattr llistxattr flistxattr listxattrat",
    "removexattr lremovexattr fremovexattr removexattrat name_to_handle_at file_getattr file_setattr",
    // Events.
    "poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 epoll_create epoll_create1",
    "epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2 eventfd eventfd2",
    "signalfd signalfd4 timerfd_create timerfd_settime timerfd_settime64 timerfd_gettime",
    "timerfd_gettime64 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch fanotify_mark",
    "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents io_pgetevents_time64",
    // Memory.
    "brk mmap mmap2 munmap mremap mprotect madvise mincore mlock mlock2 mlockall munlock munlockall",
    "msync membarrier pkey_alloc pkey_free pkey_mprotect remap_file_pages map_shadow_stack mseal",
    "process_mrelease get_mempolicy",
    // Processes and threads.
    "fork vfork execve execveat exit exit_group wait4 waitid waitpid getpid getppid gettid getpgid",
    "getpgrp setpgid getsid setsid kill tkill tgkill pidfd_open pidfd_send_signal set_tid_address",
    "set_robust_list get_robust_list futex futex_time64 futex_waitv futex_wake futex_wait",
    "futex_requeue rseq prctl arch_prctl getcpu set_thread_area get_thread_area capget capset",
    "seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self restart_syscall",
    "sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getattr",
    "sched_setattr sched_getscheduler sched_setscheduler sched_get_priority_max",
    "sched_get_priority_min sched_rr_get_interval sched_rr_get_interval_time64 getpriority",
    "setpriority ioprio_get ioprio_set getrlimit setrlimit ugetrlimit prlimit64 getrusage times",
    "sysinfo uname alarm pause getitimer setitimer breakpoint cacheflush set_tls",
    // Who the process is.
    "getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getgroups getgroups32",
    "getresuid getresuid32 getresgid getresgid32 setuid setuid32 setgid setgid32 setgroups",
    "setgroups32 setreuid setreuid32 setregid setregid32 setresuid setresuid32 setresgid",
    "setresgid32 setfsuid setfsuid32 setfsgid setfsgid32",
    // Signals.
    "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait",
    "rt_sigtimedwait_time64 rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack sigaction sigprocmask",
    "sigreturn sigpending sigsuspend signal",
    // Time.
    "time gettimeofday clock_gettime clock_gettime64 clock_getres clock_getres_time64 nanosleep",
    "clock_nanosleep clock_nanosleep_time64 timer_create timer_settime timer_settime64 timer_gettime",
    "timer_gettime64 timer_getoverrun timer_delete adjtimex clock_adjtime clock_adjtime64",
    // Sockets; which families is below.
    "socketpair socketcall bind listen accept accept4 connect shutdown getsockname getpeername",
    "getsockopt setsockopt send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg",
    "recvmmsg_time64",
    // Between processes.
    "ipc shmget shmat shmdt shmctl semget semop semtimedop semtimedop_time64 semctl msgget msgsnd",
    "msgrcv msgctl mq_open mq_unlink mq_timedsend mq_timedsend_time64 mq_timedreceive",
    "mq_timedreceive_time64 mq_notify mq_getsetattr",
    // Debugging one's own processes, and randomness.
    "ptrace process_vm_readv process_vm_writev getrandom statmount listmount lsm_get_self_attr",
    "lsm_set_self_attr lsm_list_modules uretprobe",
];

/// What a capability, by its number, adds.
const BY_CAPABILITY: &[(u32, &str)] = &[
    (2, "open_by_handle_at"),
    (
        21,
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount \
         mount_setattr move_mount open_tree open_tree_attr perf_event_open quotactl quotactl_fd \
         setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    (22, "reboot"),
    (18, "chroot"),
    (16, "delete_module init_module finit_module"),
    (20, "acct"),
    (19, "kcmp pidfd_getfd process_madvise"),
    (17, "iopl ioperm"),
    (25, "settimeofday stime clock_settime clock_settime64"),
    (26, "vhangup"),
    (23, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (34, "syslog"),
    (39, "bpf"),
    (38, "perf_event_open"),
];

const SYS_ADMIN: u32 = 21;
/// Flags of `clone` that make a namespace.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Sockets to the hypervisor.
const AF_VSOCK: u64 = 40;
/// What `personality` may be asked for: the default, the 32-bit look, and the question itself.
const PERSONALITIES: [u64; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

/// The profile for a container with these capabilities.
pub fn default_profile(capabilities: u64) -> Profile {
    let has = |capability: u32| capabilities & 1 << capability != 0;
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let allow = |names: Vec<String>, arguments: &[(u32, Comparison)]| Rule {
        names,
        action: Action::Allow,
        arguments: arguments.to_vec(),
    };
    let mut rules = vec![allow(words(&ANYBODY.join(" ")), &[])];
    for (capability, names) in BY_CAPABILITY {
        if has(*capability) {
            rules.push(allow(words(names), &[]));
        }
    }
    rules.push(allow(words("socket"), &[(0, Comparison::NotEqual(AF_VSOCK))]));
    for value in PERSONALITIES {
        rules.push(allow(words("personality"), &[(0, Comparison::Equal(value))]));
    }
    if !has(SYS_ADMIN) {
        rules.push(allow(words("clone"), &[(0, Comparison::Masked(NEW_NAMESPACES, 0))]));
        // Its flags are behind a pointer, where a filter cannot look; libraries fall back to clone.
        let action = Action::Errno(libc::ENOSYS as u16);
        rules.push(Rule { names: words("clone3"), action, arguments: Vec::new() });
    }
    Profile { default: Action::Errno(libc::EPERM as u16), rules }
}
