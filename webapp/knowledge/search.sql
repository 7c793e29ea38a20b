-- name: search
SELECT p.document_id, p.index, d.title, p.heading, p.text, ts_headline('english', p.text, query, %(headline)s),
       ts_rank_cd(p.search, query, 1) AS rank
FROM knowledge_passage p JOIN knowledge_document d ON d.id = p.document_id, websearch_to_tsquery('english', %(text)s) query
WHERE d.team_id = ANY(%(teams)s) AND p.search @@ query
ORDER BY rank DESC, p.document_id, p.index
LIMIT %(limit)s
