"""Files, folders, the ring and what the system is asked for; knows nothing of messages.

Begin with `disk` and `log_file`: the file system as the store sees it, which tests replace.

    files               log_file, os_file, descriptor, open_files, looking
    POSIX calls alone   posix_disk, posix_file
    with Linux's        linux_disk, linux_file
    ways to read        leased, lease, direct_reads, prefault
    ways to write       write_behind, blocks
    memory              ring, buffers, mapped, shared_memory
    a store's folder    folder, lane_start, exchange
    process             background, clock, forks, sleepers, steps, system
"""
