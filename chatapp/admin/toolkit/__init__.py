"""The kit that every admin page is made with, in chatapp and in the apps that join it.

* model_admin: the base class of all pages and lists; what a page has are methods to override
* columns: a column of a list or a field of a page, in one line
* lists: paging without counting, filters by value, by condition, by one row
* page_parts: links, sections, panels, and tables with their columns declared
* page_forms: forms on a row's page
* html: links, badges, stored texts; chatapp.formatting has what is plain text
* svg: drawings and bar charts
* path_pages: pages of a branch's messages, and how each message stands
* timeline: entries of a session's timeline, merged from tables
* extension: what an app adds to the front page, to pages of sessions and messages, to timelines
"""
