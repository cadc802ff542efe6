"""What people read of training runs: the table with intervals, the curves, the cost, the samples.

report/command.py    python -m model_training report RUN [RUN ...] --output FOLDER
report/run_folder.py reads what a run has written
report/rows.py       evaluations -> rows of the table, and their paired differences
report/curves.py     metrics -> drawings (SVG)
report/browser.py    samples -> compressed pieces that the page shows a few of
render/markdown.py, report/page.py, report/card.py   the words
"""
