"""Papers lie here, a folder for each: claims, strategy, laws, what it reads of a
recording, its pages.

Nobody imports them: they are found because they are here.
"""
