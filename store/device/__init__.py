"""Files, folders, the ring and what the system is asked for; knows nothing of messages.

Begin with `disk`: the file system as the store sees it, which tests replace.

    files               os_file, descriptor, open_files, looking
    ways to read        leased, direct_reads, prefault
    ways to write       write_behind
    memory              ring, buffers, mapped, shared_memory
    a store's folder    folder, lane_start, exchange
    process             background, clock, forks, system
"""
