"""Readers in other processes: the page by which the writer tells how far it is, and how they follow it.

Begin with `publisher` in the writer's process, and with `follower` in a reader's.

    the writer          publisher, mirror, calls
    figures             figures_teller, figures_watch
    the reader          follower, page, files, followed_ring, whole_frames
    one lane of it      lane, followed_offsets, tail, plain_frames
"""
