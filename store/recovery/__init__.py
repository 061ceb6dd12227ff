"""Recovery of a lane after a crash, and repair of damage.

Begin with `lane_recovery`, which walks over a lane's segments.

    files, frames       lane_files, used_file, segment_scan
    what it gives       recovered_lane, applied
    streams, footers    lane_streams, name_list, lane_index, reindex
    repair              repair, tally, placement, neighbours
"""
